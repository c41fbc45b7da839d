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
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ode_transformer.decoding.teacher_forcing import log_probabilities
from ode_transformer.lab.analysis.linear_fit import LinearFit, LinearSums
from ode_transformer.lab.analysis.systems import run_hooked
from ode_transformer.models.depth_stack import DepthStack
from ode_transformer.models.layer_hooks import depth_stacks, removed_afterwards, tensors_between
from ode_transformer.nn import LayerId
from ode_transformer.support.console import ProgressMeter

SeeLayer = Callable[[LayerId, Sequence[Tensor], Sequence[Tensor], Tensor], None]


def see_layers(stack: DepthStack, see: SeeLayer) -> list[Any]:
    """Call ``see`` with each layer, what it reads and returns, tensors [.., dim], and the padding.

    :return: handles, each of which ends its hook by ``remove``
    """
    appended: list[Tensor] = []

    def see_outputs(layer: Any, inputs: Any, outputs: Any) -> None:
        y, state, context, _ = inputs
        returned = [*appended] or tensors_between(*outputs)
        appended.clear()
        see(LayerId(stack.stack, layer.index + 1), tensors_between(y, state), returned, context.padding)

    handles: list[Any] = [layer.register_forward_hook(see_outputs) for layer in stack.layers]
    if hasattr(stack.depth_scheme, "append"):
        handles.append(_AppendHook(stack.depth_scheme, appended))
    return handles


class _AppendHook:
    """Keeps what blocks return before a scheme combines it with earlier outputs, until it is removed."""

    def __init__(self, scheme: Any, outputs: list[Tensor]) -> None:
        def append(output: Tensor, state: Any, block: int) -> Any:
            outputs.append(output)
            return type(scheme).append(scheme, output, state, block)

        self.scheme, scheme.append = scheme, append

    def remove(self) -> None:
        del self.scheme.append


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


def layer_sums(
    model: Any, samples: Iterable[Mapping[str, Any]], layers: Collection[LayerId]
) -> dict[LayerId, LinearSums]:
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


def negative_log_likelihood(model: Any, sample: Mapping[str, Any], padding_idx: int) -> Tensor:
    """Return the loss of a batch's target in nats per token: −(1/N) Σ log p(y_t | y_<t, x)."""
    scores = log_probabilities(model, sample["net_input"])  # [B, T, V]
    return nn.functional.nll_loss(scores.flatten(0, 1), sample["target"].flatten(), ignore_index=padding_idx)


def distil(
    model: Any,
    layer: LayerId,
    start: LinearFit,
    samples: Iterable[Mapping[str, Any]],
    updates: int,
    lr: float,
    padding_idx: int,
) -> LinearFit:
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
            loss = negative_log_likelihood(model, sample, padding_idx)
        loss.backward()
        optimizer.step()
        schedule.step()
        meter.update(update + 1, f", loss {loss.item():.4f} nats per token")
    return replace(start, weight=linear.weight.detach(), bias=linear.bias.detach())
