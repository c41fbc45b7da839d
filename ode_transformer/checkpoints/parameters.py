"""Parameters of checkpoints: those with several names, and those of earlier versions with their optimizer's state."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ode_transformer.nn.older_parameters import join_projections, sources_of_parameters
from ode_transformer.support.errors import UserError

_BUFFERS = ("version", "_float_tensor", "_extra_state")  # ends of names of tensors that are not trained


def tied_names(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Map each further name of a tied parameter (the same elements of one storage) to its first name."""
    firsts: dict[tuple[object, ...], str] = {}
    ties = {}
    for name, tensor in tensors:
        identity = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())
        first = firsts.setdefault(identity, name)
        if first != name:
            ties[name] = first
    return ties


def check_finite(path: Path, parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameters of a checkpoint that are no numbers, as of a training that diverged.

    :raises UserError: names the first of them
    """
    for name, tensor in parameters.items():
        if not tensor.isfinite().all():
            raise UserError(f"{path}: {name} holds NaN or infinity: take an earlier checkpoint of its training")


def upgrade_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """Give a checkpoint of an earlier version the parameters of today, in place, and return it.

    The optimizer's state changes with them, so that a training goes on where it stopped.

    :raises UserError: the state is not one number for each number of the parameters
    """
    model, optimizer = state["model"], state.get("last_optimizer_state")
    if all(len(sources) == 1 for sources in sources_of_parameters(model).values()):
        return state
    if isinstance(optimizer, dict) and optimizer.get("state"):
        ties = tied_names(model.items())
        trained = {name: x for name, x in model.items() if not name.endswith(_BUFFERS) and name not in ties}
        _join_moments(optimizer, trained)
    averages = [(state.get("extra_state") or {}).get(name) for name in ("ema", "ema_fp32_params")]
    for parameters in (model, *averages):
        if parameters is not None:
            join_projections(parameters)
    return state


def _join_moments(optimizer: dict[str, Any], parameters: Mapping[str, Tensor]) -> None:
    """Join what an optimizer keeps of each number, such as Adam's moments.

    The state has an entry for each parameter by its number in their order, or a single one with all numbers in a row,
    as of half precision.
    """
    sources = sources_of_parameters(parameters)
    state, (group, *_) = optimizer["state"], optimizer["param_groups"]

    def join(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([tensors[source] for source in sources[name]])

    if len(group["params"]) == 1:
        (entry,) = state.values()
        for key, moment in entry.items():
            if isinstance(moment, Tensor) and moment.dim():
                parts = moment.split([x.numel() for x in parameters.values()])
                by_name = dict(zip(parameters, parts, strict=True))
                entry[key] = torch.cat([join(name, by_name) for name in sources])
        return
    entries = dict(zip(parameters, (state.get(number) for number in group["params"]), strict=True))
    optimizer["state"] = {}
    for number, (name, parts) in enumerate(sources.items()):
        if (entry := entries[parts[0]]) is None:  # the parameter has had no gradient
            continue
        for key, moment in entry.items():
            if isinstance(moment, Tensor) and moment.dim():
                if moment.shape != parameters[parts[0]].shape:
                    raise UserError("the optimizer's state is of an earlier version: add --reset-optimizer")
                entry[key] = join(name, {piece: entries[piece][key] for piece in parts})
        optimizer["state"][number] = entry
    group["params"] = list(range(len(sources)))
