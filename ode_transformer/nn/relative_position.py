"""Relative position representations on the keys (Shaw et al. 2018, Eq. 4).

    e_ij = q_i · (k_j + A[clip(j − i, −k, k) + k]),   A: 2k + 1 rows of the width of a head, shared by the heads

q_i · A is computed once for each query and offset, [.., T, 2k + 1], and read out for each pair of positions. The rows
A[…] of all pairs, [T, S, head_dim], are never made.
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


class RelativePositionKeys(nn.Module):
    """The table A and its contribution to the attention scores.

    :param clip: k > 0, the largest distance that is told apart
    :param head_dim: width of one attention head
    """

    def __init__(self, clip: int, head_dim: int) -> None:
        super().__init__()
        if clip <= 0:
            raise ValueError(f"the clip distance of relative positions must be positive, not {clip}")
        self.clip = clip
        self.weight = nn.Parameter(torch.empty(2 * clip + 1, head_dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Tensor, index: Tensor) -> Tensor:
        """The scores that the table adds.

        :param query: scaled queries [B, H, T, head_dim]
        :param index: from :func:`relative_index`
        :returns: [B, H, T, S]
        """
        batch, heads, length, _ = query.shape
        products = torch.matmul(query, self.weight.t())  # [B, H, T, 2k + 1]
        pairs = products.reshape(batch * heads, -1).index_select(1, index)
        return pairs.view(batch, heads, length, -1)
