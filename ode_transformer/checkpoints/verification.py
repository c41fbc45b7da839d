"""``ode-transformer checkpoint verify``: check checkpoints of strangers before fairseq's own commands open them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.parameters import check_finite
from ode_transformer.checkpoints.plain_model import NeedsFairseq, build_plain_model
from ode_transformer.checkpoints.reading import saved_options
from ode_transformer.support.errors import UserError

_TASKS = ("translation", "joint_translation", "language_modeling")
# The criteria of these tasks that evaluate none of their options
_CRITERIA = ("cross_entropy", "label_smoothed_cross_entropy", "adaptive_loss")


def verify_checkpoint(path: Path, state: Mapping[str, Any]) -> str:
    """Check what fairseq's own commands would run of a checkpoint, and that its parameters fit its options.

    :param state: what was read of it
    :return: a line that says what it holds
    :raises UserError: a part is refused, or fairseq would read another file in its place
    :raises NeedsFairseq: it is no translation or language model, or has a part that only fairseq can check
    """
    check_shard(path)
    task, criterion = saved_options(state, "task"), saved_options(state, "criterion")
    if (name := task.get("_name") or task.get("task") or _TASKS[0]) not in _TASKS:
        raise NeedsFairseq(f"task {name} is one of fairseq's")
    name = criterion.get("criterion") or criterion.get("_name")
    if name is not None and str(name).removeprefix("fused_") not in _CRITERIA:
        raise NeedsFairseq(f"criterion {name} is one of fairseq's")
    embeddings = (state["model"].get(f"{stack}.embed_tokens.weight") for stack in ("encoder", "decoder"))
    words = [len(matrix) for matrix in embeddings if matrix is not None and matrix.dim()] or [0]
    try:
        build_plain_model(state, words[0], words[-1])
    except NeedsFairseq:
        raise
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    model = saved_options(state, "model")
    return description(path, state, str(model.get("arch") or model.get("_name")))


def check_shard(path: Path) -> None:
    """Refuse a checkpoint with a file beside it that fairseq would read in its place."""
    shard = path.parent / f"{path.name[:-3]}-shard0.pt"
    if shard.exists():
        raise UserError(f"{path}: fairseq would read {shard.name} in its place: verify and use that one, or remove it")


def description(path: Path, state: Mapping[str, Any], architecture: str) -> str:
    """Return the line of a checkpoint that was not refused.

    :raises UserError: a parameter is not finite
    """
    check_finite(path, state["model"])
    numbers = sum(tensor.numel() for tensor in state["model"].values())
    return f"{path}: {architecture}, {numbers:,} numbers in {len(state['model']):,} tensors; runs no code"
