"""Import of fairseq in less time."""

import gc
import sys
import warnings


def import_fairseq() -> None:
    """Import fairseq without looking for garbage among the objects that it creates, which all stay."""
    warnings.filterwarnings("ignore", message="'pin_memory'")  # fairseq asks for it with or without a GPU
    if "fairseq" in sys.modules:
        return
    gc.disable()
    import fairseq  # noqa: F401

    gc.freeze()
    gc.enable()
