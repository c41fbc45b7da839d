"""Parts of a source × target grid: joint representation, attention along an axis, reduction (Reformer, Eqs. 4 to 6).

    joint representation    x_st = embed_s + embed_t            or their concatenation, as in the released code
    separable attention     Concat(split_1, …),  split_i = Attention(Q_i, K_i, V_i)   for each line i of positions
    reduction               x̂ = LN(x),  e = x̂ Wᵀ,  p = softmax of e over s for each feature,  y_t = Σ_s p_st ⊙ x̂_st

In separable attention one of the axes is one more batch axis. With one attention along each axis every position reaches
every other, by S·T² + S²·T scores in place of the (S·T)² of attention over all positions. Masks broadcast to [B, lines,
H, D, D], D the attended axis; caches of attention along the target hold keys and values [B, S, H, T, C/H].

Axes: B batch, S source, T target, C channels, H heads. A grid is [B, S, T, C].
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.nn.attention import MultiheadAttention


def joint_width(source: int, target: int, combination: str) -> int:
    """Return the width of a grid over sequences of widths ``source`` and ``target``."""
    return source + target if combination == "concat" else target


def joint_representation(source: Tensor, target: Tensor, combination: str = "add") -> Tensor:
    """Combine all pairs of two positions (Eq. 4), [B, S, C_source] and [B, T, C_target] -> [B, S, T, C]."""
    source, target = source.unsqueeze(2), target.unsqueeze(1)  # [B, S, 1, C_source], [B, 1, T, C_target]
    if combination == "add":
        return source + target  # [B, S, T, C]
    shape = source.size(0), source.size(1), target.size(2), -1
    return torch.cat([source.expand(*shape), target.expand(*shape)], dim=-1)  # [B, S, T, C]


class SourceAxisAttention(MultiheadAttention):
    """Attention along the source axis; :class:`MultiheadAttention` itself is attention along the target axis."""

    def forward(self, x: Tensor, *arguments: Any, **inputs: Any) -> Tensor:
        """Attend within each line, [B, S, T, C] -> [B, S, T, C]; further arguments are those of all attentions."""
        # One copy that the three projections share; no copy when there is a single target position.
        lines = x.transpose(1, 2).contiguous()  # [B, T, S, C]
        return super().forward(lines, *arguments, **inputs).transpose(1, 2)  # [B, S, T, C]


class Reduction(nn.Module):
    """Reduction of a grid over its source axis (Eq. 6), for each feature by weights that the positions give.

    :param dim: width C
    :param kind: ``softmax``, the paper's weighted mean; ``max``, an option of the released code,
        the greatest value of each feature
    :param normalize_before: normalise the grid; otherwise normalise the result, as post-norm layers do
    """

    def __init__(self, dim: int, kind: str = "softmax", normalize_before: bool = True) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.projection = nn.Linear(dim, dim, bias=False) if kind == "softmax" else None
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=dim**-0.5)  # as in the released code; the paper does not say
        self.normalize_before = normalize_before

    def forward(self, x: Tensor, padding: Tensor | None = None, weights: list[Tensor] | None = None) -> Tensor:
        """Reduce the grid to one vector for each target position.

        :param x: [B, S, T, C]
        :param padding: [B, S], True at padding
        :param weights: list to which the weights of the source positions, [B, T, S], mean over C, are appended
        :returns: [B, T, C]
        """
        x = self.layer_norm(x) if self.normalize_before else x
        scores = x if self.projection is None else self.projection(x)
        if padding is not None:
            scores = scores.masked_fill(padding[:, :, None, None], torch.finfo(scores.dtype).min)
        if self.projection is None:
            reduced, argmax = scores.max(dim=1)  # [B, T, C]
            if weights is not None:
                of_source = x.new_zeros(*argmax.shape[:2], x.size(1))  # [B, T, S]
                weights.append(of_source.scatter_add_(-1, argmax, torch.full_like(reduced, 1 / x.size(-1))))
        else:
            probabilities = scores.softmax(dim=1)  # [B, S, T, C]
            reduced = (probabilities * x).sum(dim=1)  # [B, T, C]
            if weights is not None:
                weights.append(probabilities.mean(dim=-1).transpose(1, 2))  # [B, T, S]
        return reduced if self.normalize_before else self.layer_norm(reduced)


def parts_of_batch(source: Sequence[int], target: Sequence[int], positions: int) -> list[slice]:
    """Divide the rows of a batch so that the grid of each part has at most ``positions`` positions, padding included.

    A row with more positions is a part of its own.
    """
    parts, begin, longest = [], 0, (0, 0)
    for row, lengths in enumerate(zip(source, target, strict=True)):
        wider = max(longest[0], lengths[0]), max(longest[1], lengths[1])
        if row > begin and (row + 1 - begin) * wider[0] * wider[1] > positions:
            parts.append(slice(begin, row))
            begin, wider = row, lengths
        longest = wider
    return [*parts, slice(begin, len(source))]
