"""A layer of a trained model as a function of the layers before it, and a linear map in its place.

The function maps x to y at one position: x is all that the layer reads of earlier layers, y all that it passes on.

- plain layers: y_{l−1} and y_l;
- a layer history: the combination that the layer reads, and its output before that is normalised and combined;
- ``dlcl-increments``: y_l, and the increments of the layer's blocks before they are weighed and summed;
- schemes that read y_{l−1}: y_l and y_{l−1}, so that W is 2d × 2d;
- predictor–corrector schemes: x and what the scheme keeps of earlier blocks, a sum of theirs or their increments;
- a depth-wise LSTM: output and cell, so that W is 2d × 2d;
- a Reformer's joint layers: the same at each position of the grid.

So a replaced layer keeps no attention, neither to its own side nor, in a decoder, to the source.

The map is the least-squares fit to all positions, from one pass over them:

    minimise Σ_n ‖W x_n + b − y_n‖²        x_n in R^p, y_n in R^q, n = 1 … N

With the means x̄ and ȳ, S_xx = Σ (x_n − x̄)(x_n − x̄)ᵀ, S_yx = Σ (y_n − ȳ)(x_n − x̄)ᵀ and S_yy = Σ ‖y_n − ȳ‖²:

    W = S_yx S_xx⁺,   b = ȳ − W x̄,   R² = 1 − (S_yy − tr(W S_yxᵀ)) / S_yy

S_xx⁺ is the inverse, or the pseudo-inverse where the arguments lie in a subspace, as behind a layer normalisation:
then W is the smallest of the maps that fit equally well. The fit is computed in double precision.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ode_transformer.decoding.teacher_forcing import log_probabilities
from ode_transformer.lab.analysis.systems import Samples, run_hooked
from ode_transformer.nn import LayerId, Stack
from ode_transformer.nn.layer_hooks import depth_stacks, removed_afterwards, tensors_between
from ode_transformer.support.console import ProgressMeter

# The arguments have single precision: a direction with relatively less variation than this is rounding noise.
_PRECISION = torch.finfo(torch.float32).eps

SeeLayer = Callable[[LayerId, Sequence[Tensor], Sequence[Tensor], Tensor], None]


def see_layers(stack: Stack, see: SeeLayer) -> list[Any]:
    """Call ``see`` with each layer, what it reads and returns, tensors [.., dim], and the padding.

    :return: handles for ``removed_afterwards``
    """
    appended: list[Tensor] = []

    def see_outputs(layer: Any, inputs: Any, outputs: Any) -> None:
        y, state, context, _ = inputs
        returned = [*appended] or tensors_between(*outputs)
        appended.clear()
        see(LayerId(stack.stack, layer.index + 1), tensors_between(y, state), returned, context.padding)

    handles: list[Any] = [layer.register_forward_hook(see_outputs) for layer in stack.layers]
    if hasattr(stack.depth_scheme, "append"):
        handles.append(_seen_appends(stack.depth_scheme, appended))
    return handles


@contextmanager
def _seen_appends(scheme: Any, outputs: list[Tensor]) -> Iterator[None]:
    """Keep what blocks return before a scheme combines it with earlier outputs."""

    def append(output: Tensor, state: Any, block: int) -> Any:
        outputs.append(output)
        return type(scheme).append(scheme, output, state, block)

    scheme.append = append
    try:
        yield
    finally:
        del scheme.append


@contextmanager
def replace_layer(model: Any, layer: LayerId, function: nn.Module) -> Iterator[None]:
    """Put the result of ``function``, [..., p] to [..., q], in the place of a layer's within the ``with`` block."""

    def replace_outputs(module: Any, inputs: Any, outputs: Any) -> tuple[Tensor, Any]:
        y, state, _, scheme = inputs
        tensors = function(torch.cat(tensors_between(y, state), dim=-1)).split(y.size(-1), dim=-1)
        if not hasattr(scheme, "append"):
            in_order = iter(tensors)
            return tree_map_only(Tensor, lambda _: next(in_order), outputs)
        for block, output in enumerate(tensors, module.first_block):
            y, state = scheme.append(output, state, block)
        return y, state

    module = depth_stacks(model)[layer.stack].layers[layer.number - 1]
    with removed_afterwards([module.register_forward_hook(replace_outputs)]):
        yield


@dataclass(frozen=True)
class LinearFit:
    """A linear map y ≈ W x + b and the quality of its fit.

    :param weight: W, [q, p]
    :param bias: b, [q]
    :param rank: number of directions in which the arguments vary, at most p
    :param r_squared: fraction of the values' variation that the map explains; 1 for a linear function
    """

    weight: Tensor
    bias: Tensor
    positions: int
    rank: int
    r_squared: float


@dataclass(frozen=True)
class LinearSums:
    """Sums over pairs of arguments and values, from which the fit is computed; x̂ is (1, x).

    :param xx: Σ x̂ x̂ᵀ, [1 + p, 1 + p]
    :param yx: Σ y x̂ᵀ, [q, 1 + p]
    :param yy: Σ ‖y‖², []
    """

    xx: Tensor
    yx: Tensor
    yy: Tensor

    @classmethod
    def of_pairs(cls, x: Tensor, y: Tensor) -> "LinearSums":
        """Return the sums over N pairs, x [N, p] and y [N, q]."""
        x, y = torch.cat([torch.ones_like(x[:, :1]), x], dim=-1).double(), y.double()
        return cls(x.T @ x, y.T @ x, y.square().sum())

    def __add__(self, sums: "LinearSums") -> "LinearSums":
        return LinearSums(self.xx + sums.xx, self.yx + sums.yx, self.yy + sums.yy)

    def fit(self) -> LinearFit:
        """Return the linear map with the least squared error."""
        count = self.xx[0, 0]
        mean_x, mean_y = self.xx[0, 1:] / count, self.yx[:, 0] / count
        s_xx = self.xx[1:, 1:] - count * mean_x.outer(mean_x)
        s_yx = self.yx[:, 1:] - count * mean_y.outer(mean_x)
        s_yy = self.yy - count * mean_y.square().sum()
        # S_xx = V diag(λ) Vᵀ, without the directions in which x does not vary
        values, vectors = torch.linalg.eigh(s_xx)
        varies = values > len(values) * _PRECISION**2 * values.max()
        values, vectors = values[varies], vectors[:, varies]
        weight = (s_yx @ vectors / values) @ vectors.T
        unexplained = (s_yy - (weight * s_yx).sum()).clamp(min=0)
        r_squared = 1 - (unexplained / s_yy).item() if s_yy > 0 else 1.0
        return LinearFit(weight, mean_y - weight @ mean_x, int(count), len(values), r_squared)


def layer_sums(model: Any, samples: Samples, layers: Collection[LayerId]) -> dict[LayerId, LinearSums]:
    """Run fairseq's batches; return the sums that linear fits of the layers need.

    :param model: encoder–decoder model in evaluation mode
    """
    sums: dict[LayerId, LinearSums] = {}

    def see(layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor) -> None:
        if layer in layers:
            real = padding.logical_not()
            pairs = LinearSums.of_pairs(*(torch.cat(tuple(side), dim=-1)[real] for side in (inputs, outputs)))
            sums[layer] = sums[layer] + pairs if layer in sums else pairs

    run_hooked(model, samples, see_layers, see)
    return sums


def linear_layer(weight: Tensor, bias: Tensor, like: Tensor) -> nn.Linear:
    """Return the layer W x + b in the type and on the device of ``like``."""
    layer = nn.utils.skip_init(nn.Linear, *reversed(weight.shape), device=like.device, dtype=like.dtype)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def negative_log_likelihood(model: Any, sample: Mapping[str, Any]) -> Tensor:
    """Return the loss of a batch's target in nats per token: −(1/N) Σ log p(y_t | y_<t, x)."""
    scores = log_probabilities(model, sample["net_input"])  # [B, T, V]
    target, padding = sample["target"].flatten(), model.decoder.padding_idx
    return nn.functional.nll_loss(scores.flatten(0, 1), target, ignore_index=padding)


def distil(model: Any, layer: LayerId, start: LinearFit, samples: Samples, updates: int, lr: float) -> LinearFit:
    """Train W and b alone on the likelihood of the training data, from the least-squares solution.

    Adam, with a learning rate that falls linearly to 0. The paper says that W and b are trained on the training set
    and everything else is frozen; it leaves open loss, optimizer, learning rate and number of updates.

    :param model: in evaluation mode, which it stays in: no dropout; its parameters are frozen
    :param samples: fairseq's batch of each update
    """
    model.requires_grad_(False)
    linear = linear_layer(start.weight, start.bias, next(model.parameters()))
    optimizer = torch.optim.Adam(linear.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / updates)
    meter = ProgressMeter("updates", updates)
    for update, sample in zip(range(updates), samples, strict=False):
        optimizer.zero_grad()
        with replace_layer(model, layer, linear):
            loss = negative_log_likelihood(model, sample)
        loss.backward()
        optimizer.step()
        schedule.step()
        meter.update(update + 1, f", loss {loss.item():.4f} nats per token")
    return replace(start, weight=linear.weight.detach(), bias=linear.bias.detach())
