"""Forward hooks on the layers, steps and stage weights of a stack, for logs and measurements.

Functions that hook a stack return the handles of the hooks; each handle ends its hook by ``remove``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.hooks import RemovableHandle

from ode_transformer.nn.layer import STACKS, BlockId, Layer, LayerId
from ode_transformer.nn.stack import Stack
from ode_transformer.numerics import RungeKutta, VectorField, Weight

SeeLayer = Callable[[LayerId, Sequence[Tensor], Tensor | None], None]
SeeStep = Callable[[BlockId, VectorField, Tensor, Tensor, Tensor | None], Tensor | None]
SeeWeights = Callable[[BlockId, Sequence[Weight], Tensor | None], None]


def depth_stacks(model: Any) -> dict[str, Stack]:
    """Return the stacks of a model by name: a language model's decoder, none of fairseq's own models."""
    stacks = {name: getattr(model, name, None) for name in STACKS}
    return {name: stack for name, stack in stacks.items() if isinstance(stack, Stack)}


@contextmanager
def removed_afterwards(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove hooks at the end of the ``with`` block."""
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield


def tensors_between(y: Tensor, state: Any) -> list[Tensor]:
    """Return what a layer reads: y, and the tensors of its scheme's state without its history, each [.., dim]."""
    if hasattr(state, "history"):
        state = state._replace(history=())
    return [x for x in tree_leaves((y, state)) if isinstance(x, Tensor)]


def see_layer_inputs(stack: Stack, see: SeeLayer) -> list[RemovableHandle]:
    """Call ``see`` with each layer, what it reads, and the padding, [B, T] or [B, S, T].

    The tensors are views, so that their gradients are those of this layer alone.
    """

    def replace_inputs(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        assert isinstance(module, Layer)
        y, state, context, scheme = inputs
        y, state = tree_map_only(Tensor, lambda x: x.view_as(x), (y, state))
        see(LayerId(stack.stack, module.index + 1), tensors_between(y, state), context.padding)
        return y, state, context, scheme

    return [layer.register_forward_pre_hook(replace_inputs) for layer in stack.layers]


def see_steps(stack: Stack, see: SeeStep) -> list[RemovableHandle]:
    """Call ``see`` with each block, its F, the y at which its step begins and ends, and the padding.

    Only Runge–Kutta schemes have such steps. F is multiplied by the step size: its solution at t = 1 is the block's.
    The step ends where ``see`` says, if it does not return None.
    """
    scheme = stack.depth_scheme

    @torch.no_grad()
    def see_step(module: nn.Module, inputs: tuple[Any, ...], outputs: tuple[Tensor, Any]) -> Any:
        assert isinstance(module, RungeKutta)
        (f, y, _, block), h, padding = inputs, module.step_size, inputs[0].keywords["context"].padding
        end = see(stack.stepped_blocks[block], lambda point: h * f(point, 0), y, outputs[0], padding)
        return None if end is None else (end, outputs[1])

    return [scheme.register_forward_hook(see_step)] if isinstance(scheme, RungeKutta) else []


def see_stage_weights(stack: Stack, see: SeeWeights) -> list[RemovableHandle]:
    """Call ``see`` with each block, the weights γ_1 … γ_s of its stages, and the padding.

    The weights of two or more stages, or a learned one of a single stage: numbers, or tensors [B, T, 1] or []. Those
    with a number for each channel are replaced by their means.
    """
    step: list[tuple[BlockId, Tensor | None]] = []

    def remember_block(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        f, _, _, block = inputs
        step[:] = [(stack.stepped_blocks[block], f.keywords["context"].padding)]

    @torch.no_grad()
    def see_weights(module: nn.Module, inputs: tuple[Any, ...], weights: Sequence[Weight]) -> None:
        if len(weights) > 1 or isinstance(weights[0], Tensor):
            block, padding = step[0]
            see(block, [w.mean() if isinstance(w, Tensor) and w.dim() == 1 else w for w in weights], padding)

    coefficients = getattr(stack.depth_scheme, "coefficients", ())
    handles = [stack.depth_scheme.register_forward_pre_hook(remember_block)] if len(coefficients) else []
    return [*handles, *(module.register_forward_hook(see_weights) for module in coefficients)]
