"""Relative position representations (Shaw et al. 2018, Eqs. 3 and 4).

    o_ij = clip(j − i, −k, k) + k
    e_ij = q_i · (k_j + A[o_ij])           on the keys, A: 2k + 1 rows of the width of a head, shared by the heads
    z_i  = Σ_j p_ij (v_j + B[o_ij])        on the values, B likewise

The rows A[…] and B[…] of all pairs, [T, S, head_dim], are never computed: q_i · A is computed once for each query and
offset, [.., T, 2k + 1], and looked up for each pair; p_ij is summed over the pairs of one offset, then multiplied by B.
"""

import torch
from torch import Tensor, nn


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
    """Table A, which adds to the attention scores; :func:`attention_scores` reads it."""

    def of_heads(self, query: Tensor, index: Tensor) -> Tensor:
        """Return the addend of the scores for one query of each head, not scaled.

        :param query: [B · H, 1, head_dim]
        :param index: from :func:`relative_index`, [S]
        :returns: [B · H, 1, S]
        """
        return torch.mm(query[:, 0], self.weight.t()).index_select(1, index)[:, None]


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
