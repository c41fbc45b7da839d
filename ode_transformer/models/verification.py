"""``ode-transformer checkpoint verify``: check checkpoints of strangers before fairseq's own commands open them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY

from ode_transformer.checkpoints.parameters import check_finite
from ode_transformer.checkpoints.reading import saved_options
from ode_transformer.models.admission import admitted_model, admitted_options, admitted_task
from ode_transformer.support.errors import UserError


def verify_checkpoint(path: Path, state: Mapping[str, Any]) -> str:
    """Check what fairseq's own commands would run of a checkpoint; nothing is built from it.

    :param state: what was read of it
    :return: a line that says what it holds
    :raises UserError: a part is refused, or fairseq would read another file in its place
    """
    shard = path.parent / f"{path.name[:-3]}-shard0.pt"
    if shard.exists():
        raise UserError(f"{path}: fairseq would read {shard.name} in its place: verify and use that one, or remove it")
    model, task, criterion = (saved_options(state, group) for group in ("model", "task", "criterion"))
    try:
        admitted_task(task)
        if (name := str(criterion.get("criterion") or criterion.get("_name"))) in CRITERION_REGISTRY:
            admitted_options(CRITERION_REGISTRY[name], criterion, refuses_text=True)
        architecture = admitted_model(model)["arch"]
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    check_finite(path, state["model"])
    numbers = sum(tensor.numel() for tensor in state["model"].values())
    return f"{path}: {architecture}, {numbers:,} numbers in {len(state['model']):,} tensors; runs no code"
