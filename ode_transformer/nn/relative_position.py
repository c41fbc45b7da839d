"""Relative position representations (Shaw et al. 2018, Eqs. 3 and 4).

    o_ij = clip(j − i, −k, k) + k
    e_ij = q_i · (k_j + A[o_ij])           on the keys, A: 2k + 1 rows of the width of a head, shared by the heads
    z_i  = Σ_j p_ij (v_j + B[o_ij])        on the values, B likewise

The rows A[…] and B[…] of all pairs, [T, S, head_dim], are never computed: q_i · A is computed once for each query and
offset, [.., T, 2k + 1], and looked up for each pair; p_ij is summed over the pairs of one offset, then multiplied by B.

Offsets are numbers [T, S], or one-hot vectors [T, S, 2k + 1], with which both steps and their gradients are products of
matrices. On a GPU the gradient of a lookup would add one number at a time, most of a long text to the same two places,
in an order that changes from run to run.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot


def one_hot_offsets(offsets: Tensor, clip: int, dtype: torch.dtype) -> Tensor:
    """Return offsets [T, S] as one-hot vectors, [T, S, 2k + 1]."""
    return one_hot(offsets, 2 * clip + 1).to(dtype)


def relative_offsets(queries: Tensor, keys: int, clip: int) -> Tensor:
    """Return o_ij of each pair, [T, S].

    :param queries: positions of the queries, [T]
    :param keys: S, the number of positions that they attend to
    """
    return (torch.arange(keys, device=queries.device) - queries[:, None]).clamp(-clip, clip) + clip


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

    def forward(self, query: Tensor, offsets: Tensor) -> Tensor:
        """Return q_i · A[o_ij], [.., T, head_dim] -> [.., T, S]."""
        products = query @ self.weight.t().to(query.dtype)  # [.., T, 2k + 1]
        if offsets.is_floating_point():
            return torch.einsum("...to,tso->...ts", products, offsets.to(products.dtype))
        return products.gather(-1, offsets.expand(*products.shape[:-2], -1, -1))


class RelativePositionValues(_OffsetTable):
    """Table B, which adds to the attended values."""

    def forward(self, probabilities: Tensor, offsets: Tensor) -> Tensor:
        """Return Σ_j p_ij B[o_ij], [.., T, S] -> [.., T, head_dim]."""
        if offsets.is_floating_point():
            sums = torch.einsum("...ts,tso->...to", probabilities, offsets.to(probabilities.dtype))
        else:
            sums = probabilities.new_zeros(*probabilities.shape[:-1], len(self.weight))  # [.., T, 2k + 1]
            sums = sums.scatter_add(-1, offsets.expand_as(probabilities), probabilities)
        return sums @ self.weight.to(probabilities.dtype)
