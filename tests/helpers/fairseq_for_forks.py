"""Imports for the fork server: fairseq, without advice and with what its parsers of options learn by the first."""

import atexit
import gc
import logging
import sys
import warnings

gc.set_threshold(20_000, 20)
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)  # taken for output of our commands

from fairseq.options import get_training_parser, parse_args_and_arch  # noqa: E402

# What fairseq is not told of. The package and its models remain for --user-dir.
from ode_transformer import nn, speed  # noqa: E402, F401

del sys.modules["ode_transformer"]
atexit.register(gc.freeze)  # the server's last search for garbage would take two seconds

with warnings.catch_warnings():  # once in a process: those of a fork are still to come
    warnings.simplefilter("ignore")
    parse_args_and_arch(get_training_parser(), ["data", "--arch", "transformer", "--lr-scheduler", "inverse_sqrt"])
