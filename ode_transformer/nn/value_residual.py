"""Value residual (Zhou et al. 2024): the values of the first layer's self-attention, added to those of later layers.

    V_n ← λ_1 V_1 + λ_2 V_n,  n ≥ 2        mean: λ = ½, ½;  learned: two numbers for each layer, ½ at the start

V_1 are the values in the first evaluation of the first layer, so that stages add the same values. Later evaluations of
the first layer keep theirs. In step-by-step decoding the sums are cached; nothing else has to be kept.
Axes: B batch, H heads, T positions, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class ValueResidual(nn.Module):
    """Value residual of a stack.

    :param layers: L
    :param learned: train λ_1 and λ_2 of each layer but the first
    """

    def __init__(self, layers: int, learned: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((layers - 1, 2), 0.5)) if learned and layers > 1 else None

    def start(self) -> "ResidualValues":
        """Return the state of a pass before its first layer."""
        return ResidualValues(self)

    def sum(self, layer: int, first: Tensor, values: Tensor) -> Tensor:
        """Return λ_1 V_1 + λ_2 V_n for the layer of index n − 1 ≥ 1; [B, H, T, C/H] each."""
        if self.weight is None:
            return torch.lerp(first, values, 0.5)
        first_weight, own_weight = self.weight[layer - 1].to(values.dtype).unbind()
        return first_weight * first + own_weight * values


@dataclass
class ResidualValues:
    """State of a pass: the values of the first layer's first evaluation, [B, H, T, C/H], once they are computed."""

    residual: ValueResidual
    first: Tensor | None = None

    def step(self, layer: int, values: Tensor) -> Tensor:
        """Return the values to which the layer of this index attends, [B, H, T, C/H]."""
        if layer == 0:
            if self.first is None:  # later evaluations, and a backward pass that computes it again, change nothing
                self.first = values
            return values
        assert self.first is not None
        return self.residual.sum(layer, self.first, values)
