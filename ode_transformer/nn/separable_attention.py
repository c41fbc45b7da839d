"""Separable attention (Reformer, Eq. 5): self-attention along one axis of a source × target grid at a time.

    SepAttn along D = Concat(split_1, …),  split_i = Attention(Q_i, K_i, V_i)    for each line i of positions along D

The other axis is one more batch axis. With one attention along each axis every position reaches every other, by
S·T² + S²·T scores in place of the (S·T)² of attention over all positions.

Axes: B batch, S source, T target, C channels, H heads. A grid is [B, S, T, C].
"""

from typing import Any

from torch import Tensor

from ode_transformer.nn.attention import MultiheadAttention
from ode_transformer.nn.attention_scores import PLAIN_ATTENTION, AttentionChoice

TARGET_AXIS, SOURCE_AXIS = "target", "source"


class SeparableAttention(MultiheadAttention):
    """Attention along one axis of a grid.

    :param axis: ``target``: each source position by itself; ``source``: each target position by itself
    :param heads: H, divides ``dim``
    :param choice: variant of the attention, with relative positions along the axis
    :param shared_noise: all lines along the axis share the noise of dropout, as in the released code
    """

    def __init__(
        self,
        axis: str,
        dim: int,
        heads: int,
        dropout: float = 0.0,
        choice: AttentionChoice = PLAIN_ATTENTION,
        shared_noise: bool = False,
    ) -> None:
        super().__init__(
            dim,
            heads,
            dropout,
            choice,
            shared_noise=(1,) if shared_noise else (),  # the weights of all lines are [B, lines, H, D, D]
        )
        self.axis = axis

    def forward(self, x: Tensor, *arguments: Any, **inputs: Any) -> Tensor:
        """Let the positions of each line attend to one another; further arguments are those of all attentions.

        The mask broadcasts to [B, lines, H, D, D]; a cache, for the axis ``target``, holds keys and values [B, S, H, T,
        C/H] of earlier target positions.

        :param x: [B, S, T, C]
        :returns: [B, S, T, C]
        """
        if self.axis == TARGET_AXIS:
            return super().forward(x, *arguments, **inputs)
        # One copy that the three projections share; no copy when there is a single target position.
        lines = x.transpose(1, 2).contiguous()  # [B, T, S, C]
        return super().forward(lines, *arguments, **inputs).transpose(1, 2)  # [B, S, T, C]
