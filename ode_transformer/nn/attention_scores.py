"""Scores of attention: which pairs there are, and what relative positions add.

    e_ij = scale · q_i · (k_j + A[o_ij]) + m_ij      A: rows of relative positions; m: 0, or very low for masked pairs

Axes: B batch, H heads, T query positions, S key positions, C channels. B may be several axes; N = B · H.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from ode_transformer.nn.relative_position import RelativePositionKeys, relative_index

_ALIGNMENT = 8  # numbers to which PyTorch's attention on a GPU would copy the rows of an addend


@dataclass(frozen=True)
class AttentionChoice:
    """Variant of self-attention. A new variant is a field here and its flag.

    :param max_relative_positions: clip distance k of the relative positions, 0 for none
    :param relative_values: relative positions on the values too, which needs explicit attention weights
    """

    max_relative_positions: int = 0
    relative_values: bool = False


PLAIN_ATTENTION = AttentionChoice()


@dataclass(frozen=True)
class AttentionMask:
    """Mask and relative-position index, shared by all layers of a forward pass.

    :param masked_pairs: True where a query must not attend to a key, broadcasts to [B, H, T, S]; None for no mask
    :param relative_index: index into the tables of relative positions (see ``relative_index``); None without them
    """

    masked_pairs: Tensor | None = None
    relative_index: Tensor | None = None
    _addends: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)
    _head_addends: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)
    _aligned_index: list[Tensor] = field(default_factory=list, repr=False, compare=False)

    def addend(self, dtype: torch.dtype) -> Tensor | None:
        """Return the mask as an addend of the scores, made once for all layers; None for no mask.

        Masked pairs hold half the lowest number: with -inf a row in which all pairs are masked would become NaN, and
        from half of it a score can be subtracted.
        """
        if self.masked_pairs is None:
            return None
        if dtype in self._addends and not torch.compiler.is_compiling():
            return self._addends[dtype]
        pairs = self.masked_pairs
        zeros, keys = torch.zeros((), dtype=dtype, device=pairs.device), pairs.size(-1)
        if _reads_aligned_rows(pairs):
            pairs = pad(pairs, (0, -keys % _ALIGNMENT))
        addend = zeros.expand(pairs.shape).masked_fill(pairs, torch.finfo(dtype).min / 2)[..., :keys]
        if not torch.compiler.is_compiling():  # a compiled layer that is computed again must be the same graph
            self._addends[dtype] = addend
        return addend

    def addend_of_heads(self, dtype: torch.dtype, heads: int) -> Tensor | None:
        """Return the mask of [B, 1, 1, S] pairs as an addend [B · heads, 1, S], or [1, 1, S]; None for no mask."""
        if dtype not in self._head_addends and (addend := self.addend(dtype)) is not None:
            self._head_addends[dtype] = addend.expand(-1, heads if len(addend) > 1 else 1, -1, -1).flatten(0, 1)
        return self._head_addends.get(dtype)

    def aligned_index(self, queries: int) -> Tensor:
        """Return the relative index for rows of as many keys as a GPU reads without a copy, [T · more than S]."""
        index = self.relative_index
        assert index is not None
        keys = len(index) // queries
        if not _reads_aligned_rows(index) or keys % _ALIGNMENT == 0:
            return index
        if not self._aligned_index:
            self._aligned_index.append(pad(index.view(queries, keys), (0, -keys % _ALIGNMENT)).flatten())
        return self._aligned_index[0]


def _reads_aligned_rows(x: Tensor) -> bool:
    """Tell whether PyTorch's attention would copy an addend whose rows do not begin at a multiple of ``_ALIGNMENT``."""
    return x.device.type == "cuda" and not torch.compiler.is_compiling()


def attention_mask(
    queries: int,
    keys: int,
    device: torch.device,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    choice: AttentionChoice = PLAIN_ATTENTION,
) -> AttentionMask:
    """Build the mask of ``queries`` positions that are the last of ``keys`` positions.

    :param padding_mask: [.., keys], True at padding, which lies on one side of each text; its first axes broadcast to B
    :param causal: no position attends to a later one. Padding on the right then needs no mask: what comes before does
        not see it, and nobody reads what it sees itself
    :param choice: variant of the attention
    """
    masked = None
    # A look at a value of a GPU waits for all that it still has to do.
    looks = device.type == "cpu"
    if padding_mask is not None and not (looks and not (padding_mask[..., 0] if causal else padding_mask).any()):
        masked = padding_mask[..., None, None, :]  # [.., 1, 1, S]
    if causal and queries > 1:
        future = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(keys - queries + 1)  # [T, S]
        masked = future if masked is None else masked | future  # [.., 1, T, S]
    clip = choice.max_relative_positions
    if not clip:
        return AttentionMask(masked)
    positions = torch.arange(keys - queries, keys, device=device)
    return AttentionMask(masked, relative_index(positions, keys, clip))


def attention_scores(
    query: Tensor,
    key: Tensor | None,
    positions: RelativePositionKeys | None,
    mask: AttentionMask,
    scale: float,
) -> Tensor:
    """Return the scores; without the products of queries and keys if ``key`` is None, which needs ``positions``.

    :param query: [B, H, T, C/H]
    :param key: [B, H, S, C/H]
    :returns: [B, H, T, S]
    """
    # A compiler derives the gradient by itself.
    records = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    compute = _Scores.apply if records else _compute_scores
    scores: Tensor = compute(query, key, None if positions is None else positions.weight, mask, scale)
    return scores


def _compute_scores(
    query: Tensor, key: Tensor | None, table: Tensor | None, mask: AttentionMask, scale: float
) -> Tensor:
    """Compute :func:`attention_scores`; ``table`` is A."""
    *batch, heads, length, width = query.shape
    addend = mask.addend(query.dtype)
    bias: Tensor | None = None
    if table is not None:
        assert mask.relative_index is not None
        index, keys = mask.aligned_index(length), len(mask.relative_index) // length
        products = scaled_product(query.reshape(-1, width), table.to(query.dtype).t(), scale)  # [N · T, 2k+1]
        bias = products.view(-1, length * len(table)).index_select(1, index)  # [N, T · S], or more than S
        bias = bias.view(*batch, heads, length, -1)[..., :keys]  # [B, H, T, S]
        if addend is not None:
            bias.add_(addend)
    if key is None:
        assert bias is not None
        return bias
    rows = query.reshape(-1, length, width), key.reshape(-1, *key.shape[-2:]).transpose(1, 2)
    if bias is not None:
        return torch.baddbmm(bias.flatten(0, -3), *rows, alpha=scale).view(bias.shape)
    scores = scaled_product(*rows, scale).view(*batch, heads, length, -1)
    return scores if addend is None else scores.add_(addend)


class _Scores(torch.autograd.Function):
    """:func:`attention_scores`; backward, the products add to the gradient of the queries in place."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor | None, table: Tensor | None, mask: AttentionMask, scale: float
    ) -> Tensor:
        ctx.save_for_backward(query, key, table)
        ctx.index, ctx.scale = mask.relative_index, scale
        return _compute_scores(query, key, table, mask, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dscores: Tensor) -> tuple[Tensor | None, ...]:
        query, key, table = ctx.saved_tensors
        pairs = dscores.reshape(-1, *dscores.shape[-2:])  # [N, T, S]
        queries = query.reshape(pairs.size(0), -1, query.size(-1))  # [N, T, C/H]
        dquery, dkey, dtable = None, None, None
        if table is not None:
            offsets = pairs.new_zeros(pairs.size(0), queries.size(1) * table.size(0))  # [N, T · (2k+1)]
            offsets = offsets.index_add_(1, ctx.index, pairs.reshape(pairs.size(0), -1)).view(-1, table.size(0))
            dquery = scaled_product(offsets, table.to(query.dtype), ctx.scale).view(queries.shape)
            dtable = scaled_product(offsets.t(), queries.reshape(-1, queries.size(-1)), ctx.scale)
        if key is not None:
            keys = key.reshape(pairs.size(0), -1, key.size(-1))  # [N, S, C/H]
            dkey = scaled_product(pairs.transpose(1, 2), queries, ctx.scale).view(key.shape)
            if dquery is None:
                dquery = scaled_product(pairs, keys, ctx.scale)
            else:
                dquery = dquery.baddbmm_(pairs, keys, alpha=ctx.scale)
        assert dquery is not None
        return dquery.view(query.shape), dkey, dtable, None, None


def scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return scale · a b, of matrices [R, K] and [K, C] or batches of them, by one operator."""
    if torch.compiler.is_compiling():
        return scale * (a @ b)
    any_number = a.new_empty(1)  # which the factor 0 ignores
    multiply = torch.addmm if a.dim() == 2 else torch.baddbmm
    return multiply(any_number, a, b, beta=0, alpha=scale)
