"""A layer of a trained model replaced by a linear map of what the layer is a function of (Xu et al. 2020, 4).

    y = layer(x)        (Eq. 11)
    y = W x + b         (Eq. 12)

x is all that the layer reads of the layers before it, at one position, and y all that it passes on:

- plain layers: y_{l−1} and y_l;
- a layer history: the combination that the layer reads, and what it makes of it before that is normalised and combined;
- ``dlcl-increments``: y_l, and the increments of the layer's blocks before they are weighed and summed;
- schemes that read y_{l−1}: y_l and y_{l−1}, so that W is 2d × 2d;
- a depth-wise LSTM: output and cell, so that W is 2d × 2d;
- a Reformer's joint layers: all of this at each cell of the grid.

So a replaced layer keeps no attention, neither to its own side nor, in a decoder, to the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ode_transformer.analysis.linear_probe.linear_fit import LinearFit, LinearSums

if TYPE_CHECKING:
    from ode_transformer.models.depth_stack import DepthStack

STACKS = ("encoder", "decoder")


class LayerPlace(NamedTuple):
    """A layer of a model.

    :param stack: ``encoder`` or ``decoder``
    :param number: from 1 on
    """

    stack: str
    number: int

    def __str__(self) -> str:
        return f"{self.stack} layer {self.number}"


def stacks_of(model: Any) -> tuple[str, ...]:
    """Those stacks of a model that can be watched: of a language model the decoder, none of a model of fairseq's."""
    return tuple(stack for stack in STACKS if hasattr(getattr(model, stack, None), "watch"))


@contextmanager
def replaced(model: Any, place: LayerPlace, function: nn.Module) -> Iterator[None]:
    """Within the block, ``function``, [..., p] to [..., p], stands in the place of a layer."""
    stack: DepthStack = getattr(model, place.stack)
    stack.replacements[place.number - 1] = function
    try:
        yield
    finally:
        del stack.replacements[place.number - 1]


@contextmanager
def watched(model: Any, see: Callable[[LayerPlace, Sequence[Tensor], Sequence[Tensor]], None]) -> Iterator[None]:
    """Within the block, ``see`` is told of each layer what it was given and what it made of that."""

    def watch(stack: str) -> Callable[..., None]:
        return lambda index, given, made: see(LayerPlace(stack, index + 1), given, made)

    try:
        for stack in stacks_of(model):
            getattr(model, stack).watch = watch(stack)
        yield
    finally:
        for stack in stacks_of(model):
            getattr(model, stack).watch = None


def real_positions(net_input: Mapping[str, Any], stack: str, like: Tensor, padding_idx: int) -> Tensor:
    """True where what a layer reads, ``like`` [B, positions, C] or [B, S, T, C], is not of padding."""
    source = net_input["src_tokens"].ne(padding_idx)
    target = net_input["prev_output_tokens"].ne(padding_idx) if "prev_output_tokens" in net_input else source
    if like.dim() == 4:  # the cells of a source × target grid
        return source[:, :, None] & target[:, None]
    return source if stack == "encoder" else target


@torch.no_grad()
def sums_of_batch(
    model: Any, net_input: Mapping[str, Any], places: Iterable[LayerPlace], padding_idx: int
) -> dict[LayerPlace, LinearSums]:
    """What the fits of the layers have to know about one batch: its positions that are not padding.

    :param model: encoder–decoder model in evaluation mode
    :param net_input: keyword arguments of ``model.forward``
    """
    asked = set(places)
    sums: dict[LayerPlace, LinearSums] = {}

    def see(place: LayerPlace, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        if place in asked:
            kept = real_positions(net_input, place.stack, given[0], padding_idx)
            sums[place] = LinearSums.of(torch.cat(tuple(given), dim=-1)[kept], torch.cat(tuple(made), dim=-1)[kept])

    with watched(model, see):
        model(**net_input)
    return sums


def linear_layer(weight: Tensor, bias: Tensor, like: Tensor) -> nn.Linear:
    """W x + b in the type and on the device of ``like``."""
    layer = nn.Linear(weight.size(1), weight.size(0), device="meta").to_empty(device=like.device).to(like.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def negative_log_likelihood(model: Any, sample: Mapping[str, Any], padding_idx: int) -> Tensor:
    """Of the batch's target, given what is before it, in nats per token: −(1/N) Σ log p(y_t | y_<t, x)."""
    log_probabilities = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True)
    target = sample["target"]
    return nn.functional.nll_loss(log_probabilities.flatten(0, 1), target.flatten(), ignore_index=padding_idx)


class Distillation:
    """Trains W and b alone on the likelihood of the training data, from the least-squares solution on.

    Adam, with a learning rate that falls linearly to 0. The paper says that W and b are trained on the training set
    and everything else is frozen; loss, optimizer, learning rate and updates it leaves open.

    :param model: in evaluation mode, which it stays in: no dropout; its parameters are frozen
    :param start: the least-squares solution
    """

    def __init__(self, model: Any, place: LayerPlace, start: LinearFit, updates: int, lr: float) -> None:
        model.requires_grad_(False)
        self.model, self.place, self.updates = model, place, updates
        self.layer = linear_layer(start.weight, start.bias, next(model.parameters()))
        self.optimizer = torch.optim.Adam(self.layer.parameters(), lr=lr)
        self.lr, self.update = lr, 0

    def step(self, sample: Mapping[str, Any], padding_idx: int) -> float:
        """One update; returns the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * (1 - self.update / self.updates)
        self.optimizer.zero_grad()
        with replaced(self.model, self.place, self.layer):
            loss = negative_log_likelihood(self.model, sample, padding_idx)
        loss.backward()
        self.optimizer.step()
        self.update += 1
        return loss.item()

    def state_dict(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "layer": self.layer.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.update = state["update"]
        self.layer.load_state_dict(state["layer"])
        self.optimizer.load_state_dict(state["optimizer"])


def relative_change(score: float, full: float) -> float | None:
    """Δ in per cent of the full model's score, Tables 6 and 7; None where that is 0."""
    return 100 * (score - full) / full if full else None
