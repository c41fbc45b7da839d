"""Files of the linear probe: fits, and the sums of a pass over the training data that may be unfinished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from ode_transformer.analysis.linear_probe.linear_fit import LinearFit, LinearSums
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.nn.observers import LayerId
from ode_transformer.support.errors import UserError


def save_fit(fit: LinearFit, path: Path) -> None:
    """Write W and b as the parameters of a checkpoint, with the other numbers of the fit."""
    values = {entry.name: getattr(fit, entry.name) for entry in fields(fit)}
    model = {name: values.pop(name).cpu() for name in ("weight", "bias")}
    save_checkpoint({"model": model, **values}, path)


def load_fit(path: Path, device: torch.device) -> LinearFit:
    """Read a file that :func:`save_fit` wrote.

    :raises UserError: the file is damaged
    """
    state = load_checkpoint(path)
    with _expecting("fit", path):
        return LinearFit(**{name: tensor.to(device) for name, tensor in state.pop("model").items()}, **state)


@dataclass
class SavedSums:
    """Sums of a pass over the training data.

    :param request: digest of everything on which the sums depend
    :param layers: the layers that are fitted
    :param batches: number of batches so far
    :param sums: sums of each layer
    """

    request: str
    layers: list[LayerId]
    batches: int = 0
    sums: dict[LayerId, LinearSums] = field(default_factory=dict)

    def add(self, batch_sums: Mapping[LayerId, LinearSums]) -> None:
        """Add the sums of the next batch."""
        for layer, sums in batch_sums.items():
            self.sums[layer] = self.sums[layer] + sums if layer in self.sums else sums
        self.batches += 1


def save_sums(path: Path, state: SavedSums) -> None:
    """Write the sums of a pass."""
    model = {
        _tensor_name(layer, entry.name): torch.as_tensor(getattr(sums, entry.name)).cpu()
        for layer, sums in state.sums.items()
        for entry in fields(sums)
    }
    layers = [tuple(layer) for layer in state.layers]
    save_checkpoint({"request": state.request, "places": layers, "position": state.batches, "model": model}, path)


def load_sums(path: Path, device: torch.device) -> SavedSums:
    """Read a file that :func:`save_sums` wrote.

    :raises UserError: the file is damaged
    """
    state = load_checkpoint(path)
    with _expecting("sums", path):
        layers = [LayerId(*layer) for layer in state["places"]]
        sums = {}
        for layer in layers if state["position"] else []:
            values = {entry.name: state["model"][_tensor_name(layer, entry.name)] for entry in fields(LinearSums)}
            count = int(values.pop("count"))
            sums[layer] = LinearSums(count=count, **{name: tensor.to(device) for name, tensor in values.items()})
        return SavedSums(state["request"], layers, state["position"], sums)


@contextmanager
def _expecting(content: str, path: Path) -> Iterator[None]:
    """Report a checkpoint that holds something else than ``content`` as the user's error."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path}: not a file of the linear probe's {content}") from error


def _tensor_name(layer: LayerId, entry: str) -> str:
    return f"{layer.stack}.{layer.number}.{entry}"
