"""From two sequences to a grid, and from the grid to one sequence (Reformer, Eqs. 4 and 6).

    joint representation    x_st = embed_s + embed_t                      or their concatenation, as released
    reduction               x̂ = LN(x),  e = x̂ Wᵀ,  p = softmax of e over s for each feature,  y_t = Σ_s p_st ⊙ x̂_st

Axes: B batch, S source, T target, C channels. A grid is [B, S, T, C].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# How the two sequences are combined, and what the width of the grid is.
COMBINATIONS = ("add", "concat")
REDUCTIONS = ("softmax", "max")


def joint_width(source: int, target: int, combination: str) -> int:
    """The width of a grid over sequences of these widths.

    :raises ValueError: if vectors of different width are to be added
    """
    if combination == "concat":
        return source + target
    if source != target:
        raise ValueError(f"source and target of width {source} and {target} cannot be added; concatenate them")
    return target


def joint_representation(source: Tensor, target: Tensor, combination: str = "add") -> Tensor:
    """All pairs of a source and a target position (Eq. 4).

    :param source: [B, S, C_source]
    :param target: [B, T, C_target]
    :param combination: one of ``COMBINATIONS``
    :returns: [B, S, T, C]
    """
    source, target = source.unsqueeze(2), target.unsqueeze(1)
    if combination == "add":
        return source + target
    shape = source.size(0), source.size(1), target.size(2), -1
    return torch.cat([source.expand(*shape), target.expand(*shape)], dim=-1)


class Reduction(nn.Module):
    """Takes the source axis out of a grid (Eq. 6): for each feature, a mean over the source that the cells weigh.

    :param dim: width C
    :param kind: ``softmax``, the paper's; ``max``, the released code's other one: the greatest value of each feature
    :param normalize_before: normalise the grid; otherwise what it is reduced to, as post-norm layers do
    """

    def __init__(self, dim: int, kind: str = "softmax", normalize_before: bool = True) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.projection = nn.Linear(dim, dim, bias=False) if kind == "softmax" else None
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=dim**-0.5)  # as released; the paper does not say
        self.normalize_before = normalize_before

    def forward(self, x: Tensor, padding: Tensor | None = None, weights: list[Tensor] | None = None) -> Tensor:
        """One vector for each target position.

        :param x: [B, S, T, C]
        :param padding: [B, S], True at padding
        :param weights: if a list is given, how much each source position gives, [B, T, S], mean over the features
        :returns: [B, T, C]
        """
        x = self.layer_norm(x) if self.normalize_before else x
        scores = x if self.projection is None else self.projection(x)
        if padding is not None:
            scores = scores.masked_fill(padding[:, :, None, None], torch.finfo(scores.dtype).min)
        if self.projection is None:
            reduced, chosen = scores.max(dim=1)
            shares = x.new_zeros(*chosen.shape[:2], x.size(1))  # [B, T, S]
            shares.scatter_add_(-1, chosen, torch.full_like(reduced, 1 / x.size(-1)))
        else:
            probabilities = scores.softmax(dim=1)
            reduced = (probabilities * x).sum(dim=1)
            shares = probabilities.mean(dim=-1).transpose(1, 2) if weights is not None else None
        if weights is not None and shares is not None:
            weights.append(shares)
        return reduced if self.normalize_before else self.layer_norm(reduced)


def parts_of_batch(source: Sequence[int], target: Sequence[int], cells: int) -> list[slice]:
    """Divides the rows of a batch so that each part's grid has at most ``cells`` cells, padding included.

    A row that is larger than that is a part by itself.

    :param source: length of each row's source
    :param target: length of each row's target
    """
    parts, begin, longest = [], 0, (0, 0)
    for row, lengths in enumerate(zip(source, target, strict=True)):
        wider = max(longest[0], lengths[0]), max(longest[1], lengths[1])
        if row > begin and (row + 1 - begin) * wider[0] * wider[1] > cells:
            parts.append(slice(begin, row))
            begin, wider = row, lengths
        longest = wider
    return [*parts, slice(begin, len(source))]
