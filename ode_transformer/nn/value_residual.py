"""Value residual (Zhou et al. 2024): the values of the first layer's self-attention, added to those of later layers.

    V_n ← λ_1 V_1 + λ_2 V_n,  n ≥ 2        mean: λ = ½, ½;  learned: two numbers for each layer, ½ at the start

V_1 are the values in the first evaluation of the first layer, so that stages add the same values. Later evaluations of
the first layer keep theirs. In step-by-step decoding the sums are cached; nothing else has to be kept.
Axes: B batch, H heads, T positions, C channels.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from ode_transformer.nn.layer import LayerContext
from ode_transformer.nn.sublayers import SubLayerKind

VALUE_RESIDUALS = ("none", "mean", "learned")


class ValueResidual(nn.Module):
    """Value residual of a stack.

    :param layers: L
    :param learned: train λ_1 and λ_2 of each layer but the first
    """

    def __init__(self, layers: int, learned: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((layers - 1, 2), 0.5)) if learned and layers > 1 else None

    def sum(self, layer: int, first: Tensor, values: Tensor) -> Tensor:
        """Return λ_1 V_1 + λ_2 V_n for the layer of index n − 1 ≥ 1; [B, H, T, C/H] each."""
        if self.weight is None:
            return torch.lerp(first, values, 0.5)
        first_weight, own_weight = self.weight[layer - 1].to(values.dtype).unbind()
        return first_weight * first + own_weight * values


class FirstLayerValues:
    """The first layer's values in one forward pass, and what each layer does with them."""

    def __init__(self, residual: ValueResidual) -> None:
        self.residual = residual
        self.values: Tensor | None = None

    def context(self, layer: int, context: LayerContext) -> LayerContext:
        """Return the context for one step of a layer, whose self-attention keeps or adds the values."""
        kind = SubLayerKind.SELF_ATTENTION
        change = self._keep_first() if layer == 0 else self._addition(layer, self.values)
        return {**context, kind: replace(context[kind], change_values=change)}

    def _keep_first(self) -> Callable[[Tensor], Tensor]:
        """Return a function that keeps the values of its first call."""
        is_kept = False

        def keep(values: Tensor) -> Tensor:
            nonlocal is_kept
            if not is_kept:
                self.values, is_kept = values, True
            return values

        return keep

    def _addition(self, layer: int, first: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return a function that adds the first layer's values, which it keeps by itself."""

        def add(values: Tensor) -> Tensor:
            assert first is not None  # the first layer has been evaluated
            return self.residual.sum(layer, first, values)

        return add
