"""What the linear probe keeps on disk: fits, and the sums of a pass that is not over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import torch

from ode_transformer.analysis.linear_probe.linear_fit import LinearFit, LinearSums
from ode_transformer.nn.observers import LayerId
from ode_transformer.support.checkpoint_file import load_checkpoint, save_checkpoint


def save_fit(fit: LinearFit, path: Path) -> None:
    """W and b as the parameters of a checkpoint, and what else is known of them."""
    values = {field.name: getattr(fit, field.name) for field in fields(fit)}
    model = {name: values.pop(name).cpu() for name in ("weight", "bias")}
    save_checkpoint({"model": model, **values}, path)


def load_fit(path: Path, device: torch.device) -> LinearFit:
    """What :func:`save_fit` wrote.

    :raises UserError: the file is damaged
    """
    state = load_checkpoint(path)
    return LinearFit(**{name: tensor.to(device) for name, tensor in state.pop("model").items()}, **state)


def save_sums(
    path: Path, request: str, places: Sequence[LayerId], position: int, sums: Mapping[LayerId, LinearSums]
) -> None:
    """The sums of ``places`` after so many batches of a pass.

    :param request: a digest of what the pass is over
    """
    model = {
        f"{place.stack}.{place.number}.{field.name}": torch.as_tensor(getattr(entry, field.name)).cpu()
        for place, entry in sums.items()
        for field in fields(entry)
    }
    listed = [tuple(place) for place in places]
    save_checkpoint({"request": request, "places": listed, "position": position, "model": model}, path)


def load_sums(path: Path, device: torch.device) -> tuple[str, list[LayerId], int, dict[LayerId, LinearSums]]:
    """Request, places, position and sums that :func:`save_sums` wrote.

    :raises UserError: the file is damaged
    """
    state = load_checkpoint(path)
    places = [LayerId(*place) for place in state["places"]]
    sums = {}
    for place in places if state["position"] else []:
        values = {
            field.name: state["model"][f"{place.stack}.{place.number}.{field.name}"] for field in fields(LinearSums)
        }
        count = int(values.pop("count"))
        sums[place] = LinearSums(count=count, **{name: tensor.to(device) for name, tensor in values.items()})
    return state["request"], places, state["position"], sums
