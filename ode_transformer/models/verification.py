"""What ``ode-transformer checkpoint verify`` checks of models that only fairseq can build."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.checkpoints.reading import saved_options
from ode_transformer.checkpoints.verification import check_shard, description
from ode_transformer.models.admission import admitted_model, admitted_options, admitted_task
from ode_transformer.support.errors import UserError


def verify_fairseqs(path: Path, state: Mapping[str, Any]) -> str:
    """Check what fairseq's own commands would run of a checkpoint; nothing is built from it.

    :param state: what was read of it
    :return: a line that says what it holds
    :raises UserError: a part is refused, or fairseq would read another file in its place
    """
    check_shard(path)
    model, task, criterion = (saved_options(state, group) for group in ("model", "task", "criterion"))
    try:
        admitted_task(task)
        if (name := str(criterion.get("criterion") or criterion.get("_name"))) in CRITERION_REGISTRY:
            admitted_options(CRITERION_REGISTRY[name], criterion, refuses_text=True)
        architecture = admitted_model(model)["arch"]
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return description(path, state, architecture)
