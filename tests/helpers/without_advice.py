"""Imported by the fork server before fairseq, whose advice would be taken for output of our commands."""

import logging

logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
