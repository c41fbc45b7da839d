"""Multi-head attention over PyTorch's scaled_dot_product_attention.

    softmax(Q Kᵀ / √(C/H) + bias) V    for each head; the bias holds relative positions and the mask

Axes: B batch, H heads, T query positions, S key positions, C channels. B may be several axes.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ode_transformer.nn.attention_scores import (
    PLAIN_ATTENTION,
    AttentionChoice,
    AttentionMask,
    attention_scores,
    scaled_product,
)
from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.linear import Linear
from ode_transformer.nn.older_parameters import join_projections
from ode_transformer.nn.relative_position import RelativePositionKeys, RelativePositionValues

_FEW_QUERIES = 8
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class MultiheadAttention(nn.Module):
    """Self-attention, optionally with relative positions, or attention over an encoder output.

    :param dim: width C of the queries and of the result
    :param heads: H, divides ``dim``
    :param dropout: of the attention weights
    :param shared_noise: axes of the weights [B, H, T, S] along which dropout shares its noise; needs explicit weights
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        dropout: float = 0.0,
        choice: AttentionChoice = PLAIN_ATTENTION,
        encoder_dim: int | None = None,
        shared_noise: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = Dropout(dropout, shared_noise)
        self.scale = (dim // heads) ** -0.5
        self.is_self_attention = encoder_dim is None
        if encoder_dim is None:
            self.in_proj = Linear(dim, 3 * dim)  # Q, K, V
            nn.init.xavier_uniform_(self.in_proj.weight)
        else:
            self.q_proj, self.kv_proj = Linear(dim, dim), Linear(encoder_dim, 2 * dim)
            for part in (self.q_proj.weight, *self.kv_proj.weight.detach().chunk(2)):
                nn.init.xavier_uniform_(part, gain=2**-0.5)  # as in_proj
        self.out_proj = Linear(dim, dim)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        clip, head_dim = choice.max_relative_positions, dim // heads
        self.relative_keys = RelativePositionKeys(clip, head_dim) if clip else None
        self.relative_values = RelativePositionValues(clip, head_dim) if choice.relative_values else None

    def forward(
        self,
        x: Tensor,
        mask: AttentionMask,
        encoder_output: Tensor | None = None,
        cache: Cache | None = None,
        report_weights: Callable[[Tensor], None] | None = None,
        change_values: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Attend from the positions of ``x`` to themselves, or to ``encoder_output`` if there is one.

        :param x: [B, T, C]
        :param encoder_output: [B, S, C_encoder], or [B/k, S, C_encoder] if each row of it belongs to k rows of ``x`` in
            turn, as the hypotheses of a beam do
        :param cache: updated in place. Self-attention appends the keys and values of ``x`` to those of earlier
            positions; keys and values of the encoder output are computed once
        :param report_weights: called with the attention weights [B, H, T, S]
        :param change_values: maps the values [B, H, T, C/H] of ``x`` to those that are attended to
        :returns: [B, T, C]
        """
        dropout = self.dropout.active
        is_plain = not (report_weights or change_values or dropout or self.relative_values is not None)
        if cache and is_plain and x.dim() == 3 and x.size(1) == 1 and not torch.is_grad_enabled():
            return self._step(x, mask, cache)
        query, key, value = self._project(x, encoder_output, cache, change_values)
        rows, entries = query.size(0), key.size(0)
        if entries < rows:  # several rows attend to one encoder output
            query = query.unflatten(0, (entries, -1)).transpose(1, 2).flatten(2, 3)  # [B/k, H, k · T, C/H]

        def divide(x: Tensor) -> Tensor:
            """[B/k, H, k · T, ..] -> [B, H, T, ..]"""
            return x if entries == rows else x.unflatten(2, (rows // entries, -1)).transpose(1, 2).flatten(0, 1)

        positions = None if mask.relative_index is None else self.relative_keys
        explicit = report_weights is not None or self.relative_values is not None
        if not (explicit or dropout and self.dropout.shared or _is_plain_faster(query, positions is not None, dropout)):
            bias = mask.addend(query.dtype)
            if positions is not None:
                bias = attention_scores(query, None, positions, mask, self.scale)  # [B, H, T, S]
            out = self._fused(query, key, value, bias, dropout)  # [B, H, T, C/H]
        else:
            probabilities = _softmax(attention_scores(query, key, positions, mask, self.scale))  # [B, H, T, S]
            if report_weights is not None:
                report_weights(divide(probabilities))
            probabilities = self.dropout(probabilities)
            out = torch.bmm(probabilities.flatten(0, -3), value.flatten(0, -3)).view(query.shape)  # [B, H, T, C/H]
            if self.relative_values is not None:
                out = out + self.relative_values(probabilities, mask.relative_index)
        return self.out_proj(divide(out).transpose(-3, -2).flatten(-2))  # [B, T, C]

    def _step(self, x: Tensor, mask: AttentionMask, cache: Cache) -> Tensor:
        """Compute what :meth:`forward` does for a single query by as few operators as possible.

        They take longer to call than to compute for the sizes of a step: heads are one more batch axis of products of
        matrices, scaled and masked in one operator.

        :param x: [B, 1, C]
        :param cache: not empty
        :returns: [B, 1, C]
        """
        rows, _, dim = x.shape
        bias, factor = mask.addend_of_heads(x.dtype, self.heads), 1.0
        if isinstance(cache, KeyValueCache):
            projected = self.in_proj(x).view(1, rows, 3, self.heads, -1)  # [1, B, 3, H, C/H]
            cache.write(projected[:, :, 1:].transpose(1, 2))
            query = projected[:, :, 0].reshape(rows * self.heads, 1, -1)  # [B · H, 1, C/H]
            if self.relative_keys is not None:
                assert mask.relative_index is not None
                bias = _sum(self.relative_keys.of_heads(query, mask.relative_index), bias)  # [B · H, 1, S]
                factor = self.scale
        else:
            query = self.q_proj(x).view(rows // cache.run, cache.run, self.heads, -1)  # [B/k, k, H, C/H]
            query = query.transpose(1, 2).reshape(-1, cache.run, dim // self.heads)  # [B/k · H, k, C/H]
        key, value = cache.read_heads()
        if bias is None:
            scores = scaled_product(query, key, self.scale)  # [.. · H, 1 or k, S]
        else:
            scores = torch.baddbmm(bias, query, key, beta=factor, alpha=self.scale)
        out = torch.bmm(_softmax(scores), value)  # [.. · H, 1 or k, C/H]
        if isinstance(cache, EncoderCache):
            out = out.view(rows // cache.run, self.heads, cache.run, -1).transpose(1, 2)  # [B/k, k, H, C/H]
        return self.out_proj(out.reshape(rows, 1, dim))  # [B, 1, C]

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        """Call PyTorch's attention, whose fast implementations take a single batch axis: fold B into it."""
        shape = query.shape
        if query.dim() > 4:
            query, key, value = (x.flatten(0, -4) for x in (query, key, value))  # [ΠB, H, T or S, C/H]
            if bias is not None and bias.dim() > 3:
                bias = bias.expand(*shape[:-3], *bias.shape[-3:]).flatten(0, -4)  # [ΠB, H, T, S]
        with _without_cudnn():
            out = scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=self.scale)
        return out.view(shape) if len(shape) > 4 else out  # [B, H, T, C/H]

    def _project(
        self,
        x: Tensor,
        encoder_output: Tensor | None,
        cache: Cache | None,
        change_values: Callable[[Tensor], Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, H, T, C/H], and keys and values [B, H, S, C/H], fewer rows of them if rows share some."""
        if encoder_output is None:
            query, key, value = self._split_heads(self.in_proj(x), 3)
            if change_values is not None:
                value = change_values(value)
            return query, *(cache.append(key, value) if isinstance(cache, KeyValueCache) else (key, value))
        (query,) = self._split_heads(self.q_proj(x), 1)
        if isinstance(cache, EncoderCache) and cache:
            return query, *cache.read()
        key, value = self._split_heads(self.kv_proj(encoder_output), 2)
        if isinstance(cache, EncoderCache):
            cache.store(key, value, rows=len(query))
        return query, key, value

    def _split_heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """[B, T, n · C] -> n tensors [B, H, T, C/H]"""
        y = x.view(*x.shape[:-1], parts, self.heads, -1).movedim(-3, 0).transpose(-3, -2)  # [n, B, H, T, C/H]
        # On a CPU for products of matrices, which would each copy its part.
        return (y.contiguous() if x.device.type == "cpu" else y).unbind()

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        join_projections(state_dict)  # PyTorch passes a copy with the parameters of this module alone
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class _CuDNNSwitch:
    """Context without cuDNN's attention: a flag, which takes less time than ``sdpa_kernel``."""

    def __enter__(self) -> None:
        self.before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(False)

    def __exit__(self, *error: object) -> None:
        torch.backends.cuda.enable_cudnn_sdp(self.before)


def _without_cudnn() -> AbstractContextManager[None]:
    """Choose PyTorch's own kernels.

    cuDNN's can return NaN as the gradient on Hopper GPUs with a mask (pytorch/pytorch, issue 196678).
    """
    return sdpa_kernel(_KERNELS) if torch.compiler.is_compiling() else _CuDNNSwitch()


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _softmax(scores: Tensor) -> Tensor:
    """Return the attention weights, summed in float32 for half precision; of the scores' precision."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(dim=-1)


def _is_plain_faster(query: Tensor, has_positions: bool, dropout: float) -> bool:
    """Tell whether plain matrix products are faster than PyTorch's attention.

    That has a fast implementation for a CPU, which is made for many queries, and for neither dropout nor the gradient
    of an addend.
    """
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if torch.is_grad_enabled():
        return dropout > 0 or has_positions
    return query.size(-2) <= _FEW_QUERIES
