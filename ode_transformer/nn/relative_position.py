"""Relative position representations (Shaw et al. 2018, Eqs. 3 and 4).

    o_ij = clip(j − i, −k, k) + k
    e_ij = q_i · (k_j + A[o_ij])           on the keys, A: 2k + 1 rows of the width of a head, shared by the heads
    z_i  = Σ_j p_ij (v_j + B[o_ij])        on the values, B likewise

The rows A[…] and B[…] of all pairs, [T, S, head_dim], are never made: q_i · A is computed once for each query and
offset, [.., T, 2k + 1], and read out for each pair; p_ij is summed over the pairs of one offset before it meets B.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def relative_index(queries: int, keys: int, clip: int, device: torch.device) -> Tensor:
    """Where the product of query i and offset j − i stands among a query-by-offset table that is laid out flat.

    The queries are the last ``queries`` of the ``keys`` positions, as they are when decoding goes step by step.

    :returns: LongTensor [queries · keys] of indices into a table [queries · (2 clip + 1)]
    """
    query_position = torch.arange(keys - queries, keys, device=device)[:, None]
    offset = (torch.arange(keys, device=device)[None, :] - query_position).clamp(-clip, clip) + clip
    row = torch.arange(queries, device=device)[:, None] * (2 * clip + 1)
    return (row + offset).reshape(-1)


class _OffsetTable(nn.Module):
    """One vector for each offset.

    :param clip: k > 0, the largest distance that is told apart
    :param head_dim: width of one attention head
    :raises ValueError: if the clip distance is not positive
    """

    def __init__(self, clip: int, head_dim: int) -> None:
        super().__init__()
        if clip <= 0:
            raise ValueError(f"the clip distance of relative positions must be positive, not {clip}")
        self.clip = clip
        self.weight = nn.Parameter(torch.empty(2 * clip + 1, head_dim))
        nn.init.xavier_uniform_(self.weight)


class RelativePositionKeys(_OffsetTable):
    """The table A and its contribution to the attention scores."""

    def forward(self, query: Tensor, index: Tensor, scale: float = 1.0) -> Tensor:
        """The scores that the table adds.

        :param query: queries [.., H, T, head_dim]
        :param index: from :func:`relative_index`
        :param scale: factor of the scores; it meets the table, which is small, and not the queries
        :returns: [.., H, T, S]
        """
        # Over [.., T, H, head_dim], as the queries lie in memory: no copy of them is made and kept.
        products = torch.matmul(query.transpose(-3, -2), (scale * self.weight).t()).transpose(-3, -2)
        pairs = products.reshape(-1, query.size(-2) * len(self.weight)).index_select(1, index)
        return pairs.view(*query.shape[:-1], -1)


class RelativePositionValues(_OffsetTable):
    """The table B and its contribution to what attention reads."""

    def forward(self, probabilities: Tensor, index: Tensor) -> Tensor:
        """What the table adds to the attended values.

        :param probabilities: attention weights [.., H, T, S]
        :param index: from :func:`relative_index`
        :returns: [.., H, T, head_dim]
        """
        *rest, length, _ = probabilities.shape
        pairs = probabilities.reshape(-1, len(index))
        shares = pairs.new_zeros(len(pairs), length * len(self.weight)).index_add(1, index, pairs)
        return torch.matmul(shares.view(*rest, length, -1), self.weight)
