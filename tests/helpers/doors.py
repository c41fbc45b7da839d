"""The ways in which users open a checkpoint; those of fairseq where it is installed."""

from importlib.util import find_spec
from pathlib import Path

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli.checkpoints import checked
from ode_transformer.decoding.trained_model import load_trained_model

FAIRSEQS_DOORS = ("from_pretrained", "fairseq") if find_spec("fairseq") else ()


def open_model(door: str, folder: Path) -> object:
    """Open the folder's model.pt by ``translate``, ``verify``, or one of ``FAIRSEQS_DOORS``."""
    path = folder / "model.pt"
    if door == "verify":
        return checked(path, load_checkpoint(path))
    if door == "translate":
        return load_trained_model(path, folder)
    from ode_transformer.models import ODETransformerModel  # registers the architectures for fairseq, too

    if door == "fairseq":  # as fairseq-generate --user-dir
        from fairseq import checkpoint_utils

        return checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(folder)})
    return ODETransformerModel.from_pretrained(str(folder), "model.pt")
