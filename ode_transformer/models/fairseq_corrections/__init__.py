"""Faults of fairseq 0.12.3 that give wrong results or a traceback, corrected when this package is imported.

A number is that of the public report, https://github.com/facebookresearch/fairseq/issues/NUMBER; the faults without one
were found here. The function that a correction replaces is its ``__wrapped__``. With another version of fairseq a
warning says that the corrections are not tested, and which have no function to replace.
"""

from ode_transformer.models.fairseq_corrections import (  # noqa: F401
    batches,
    checkpoints,
    commands,
    searches,
    texts,
    updates,
)
