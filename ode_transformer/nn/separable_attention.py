"""Separable attention (Reformer, Eq. 5): self-attention along one axis of a source × target grid at a time.

    SepAttn along D = Concat(split_1, …),  split_i = Attention(Q_i, K_i, V_i)    for each line i of cells along D

The other axis is one more batch axis. With one attention along each axis every cell reaches every other cell, by
S·T² + S²·T scores in place of the (S·T)² of attention over all cells.

Axes: B batch, S source, T target, C channels, H heads. A grid is [B, S, T, C].
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ode_transformer.nn.attention import PLAIN_ATTENTION, AttentionChoice, AttentionMask, MultiheadAttention
from ode_transformer.nn.key_value_cache import Cache

TARGET_AXIS, SOURCE_AXIS = "target", "source"


class SeparableAttention(MultiheadAttention):
    """Attention along one axis of a grid.

    :param axis: ``target``: each source position by itself; ``source``: each target position by itself
    :param dim: width C
    :param heads: H, divides ``dim``
    :param dropout: of the attention weights
    :param choice: variant of the attention, with relative positions along the axis
    :param shared_noise: all lines along the axis share the noise of dropout, as in the released code
    :raises ValueError: if the axis is unknown, or the heads do not divide the width
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
        if axis not in (TARGET_AXIS, SOURCE_AXIS):
            raise ValueError(f"unknown axis {axis!r}; known are {TARGET_AXIS}, {SOURCE_AXIS}")
        super().__init__(
            dim,
            heads,
            dropout,
            choice,
            shared_noise=(1,) if shared_noise else (),  # the weights of all lines are [B, lines, H, D, D]
        )
        self.axis = axis

    def forward(
        self,
        x: Tensor,
        mask: AttentionMask,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        report_weights: Callable[[Tensor], None] | None = None,
        change_values: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Let the cells of each line attend to one another.

        :param x: [B, S, T, C]
        :param mask: of the positions along the axis, broadcasts to [B, lines, H, D, D]
        :param encoder_output: None, since a grid contains the source
        :param cache: keys and values [B, S, H, T, C/H] of earlier target positions, for the axis ``target``
        :param report_weights: called with the attention weights [B, lines, H, D, D]
        :param change_values: maps the values [B, lines, H, D, C/H] to those that are attended to
        :returns: [B, S, T, C]
        """
        if self.axis == TARGET_AXIS:
            return super().forward(x, mask, encoder_output, cache, report_weights, change_values)
        # One copy that the three projections share; no copy when there is a single target position.
        lines = x.transpose(1, 2).contiguous()  # [B, T, S, C]
        out = super().forward(lines, mask, encoder_output, cache, report_weights, change_values)
        return out.transpose(1, 2)  # [B, S, T, C]
