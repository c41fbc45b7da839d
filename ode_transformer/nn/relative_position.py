"""Relative position representations (Shaw et al. 2018, Eqs. 3 and 4).

    o_ij = clip(j − i, −k, k) + k
    e_ij = q_i · (k_j + A[o_ij])           on the keys, A: 2k + 1 rows of the width of a head, shared by the heads
    z_i  = Σ_j p_ij (v_j + B[o_ij])        on the values, B likewise

The rows A[…] and B[…] of all pairs, [T, S, head_dim], are never computed: q_i · A is computed once for each query and
offset, [.., T, 2k + 1], and looked up for each pair; p_ij is summed over the pairs of one offset, then multiplied by B.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def relative_index(queries: Tensor, keys: int, clip: int) -> Tensor:
    """Return for each pair (i, j) the flat index of query i and offset j − i in a query-by-offset table.

    :param queries: positions of the queries, [T]
    :param keys: S, the number of positions that they attend to
    :returns: LongTensor [T · S] of indices into a table [T · (2 clip + 1)]
    """
    offset = (torch.arange(keys, device=queries.device) - queries[:, None]).clamp(-clip, clip) + clip  # [T, S]
    row = torch.arange(len(queries), device=queries.device)[:, None] * (2 * clip + 1)  # [T, 1]
    return (row + offset).reshape(-1)  # [T · S]


class _OffsetTable(nn.Module):
    """Table of one vector for each offset.

    :param clip: k > 0, the largest distance; farther positions count as this far
    """

    def __init__(self, clip: int, head_dim: int) -> None:
        super().__init__()
        self.clip = clip
        self.weight = nn.Parameter(torch.empty(2 * clip + 1, head_dim))
        nn.init.xavier_uniform_(self.weight)


class RelativePositionKeys(_OffsetTable):
    """Table A, which adds to the attention scores."""

    def forward(self, query: Tensor, index: Tensor, scale: float = 1.0) -> Tensor:
        """Return the addend of the attention scores.

        :param query: queries [.., H, T, head_dim]
        :param index: from :func:`relative_index`
        :param scale: factor of the scores
        :returns: [.., H, T, S]
        """
        if torch.compiler.is_compiling():  # which derives the gradient of what it compiles
            products = query.reshape(-1, query.size(-1)) @ (scale * self.weight).t()  # [ΠH · T, 2k+1]
            pairs = products.view(-1, query.size(-2) * len(self.weight)).index_select(1, index)  # [ΠH, T · S]
            return pairs.view(*query.shape[:-1], -1)  # [.., H, T, S]
        scores: Tensor = _RelativeScores.apply(query, self.weight, index, scale)
        return scores

    def of_heads(self, query: Tensor, index: Tensor) -> Tensor:
        """Return the addend for one query of each head, not scaled.

        :param query: [B · H, 1, head_dim]
        :param index: from :func:`relative_index`, [S]
        :returns: [B · H, 1, S]
        """
        return torch.mm(query[:, 0], self.weight.t()).index_select(1, index)[:, None]


class _RelativeScores(torch.autograd.Function):
    """scale · q_i · A[o_ij]: one product and one look-up forward, two products and one sum backward."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, weight: Tensor, index: Tensor, scale: float) -> Tensor:
        rows = query.reshape(-1, query.size(-1))  # [ΠH · T, head_dim]
        weight = weight.to(query.dtype)
        ctx.save_for_backward(rows, weight, index)
        ctx.scale = scale
        products = torch.addmm(rows.new_empty(1), rows, weight.t(), beta=0, alpha=scale)  # [ΠH · T, 2k+1]
        pairs = products.view(-1, query.size(-2) * len(weight)).index_select(1, index)  # [ΠH, T · S]
        return pairs.view(*query.shape[:-1], -1)  # [.., H, T, S]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dscores: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, weight, index = ctx.saved_tensors
        pairs = dscores.reshape(-1, len(index))  # [ΠH, T · S]
        dproducts = pairs.new_zeros(len(pairs), rows.size(0) // len(pairs) * len(weight)).index_add_(1, index, pairs)
        dproducts = dproducts.view(-1, len(weight))  # [ΠH · T, 2k+1]
        drows = torch.addmm(rows.new_empty(1), dproducts, weight, beta=0, alpha=ctx.scale)
        dweight = torch.addmm(rows.new_empty(1), dproducts.t(), rows, beta=0, alpha=ctx.scale)
        return drows.view(*dscores.shape[:-1], -1), dweight, None, None


class RelativePositionValues(_OffsetTable):
    """Table B, which adds to the attended values."""

    def forward(self, probabilities: Tensor, index: Tensor) -> Tensor:
        """Return the addend of the attended values.

        :param probabilities: attention weights [.., H, T, S]
        :returns: [.., H, T, head_dim]
        """
        *batch, length, _ = probabilities.shape
        pairs = probabilities.reshape(-1, len(index))  # [ΠH, T · S]
        sums = pairs.new_zeros(len(pairs), length * len(self.weight)).index_add(1, index, pairs)  # [ΠH, T · (2k+1)]
        return torch.matmul(sums.view(*batch, length, -1), self.weight)  # [.., H, T, head_dim]
