"""Multi-head attention, softmax(Q Kᵀ / √(C/H) + bias) V; the bias holds the mask and relative positions.

Axes: B batch, H heads, T query positions, S key positions, C channels. B may be several axes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ode_transformer.nn.attention_scores import PLAIN_ATTENTION, AttentionChoice, AttentionMask, softmax
from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.linear import Linear
from ode_transformer.nn.older_parameters import join_projections
from ode_transformer.nn.relative_position import RelativePositionKeys, RelativePositionValues


class MultiheadAttention(nn.Module):
    """Self-attention, optionally with relative positions, or attention over an encoder output.

    :param dim: width C of the queries and of the result
    :param heads: H, divides ``dim``
    :param dropout: of the attention weights
    :param encoder_dim: width of the encoder output; None for self-attention
    :param shared_noise: axes of the weights [B, H, T, S] along which dropout shares its noise
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
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.dropout = Dropout(dropout, shared_noise)
        if encoder_dim is None:
            self.in_proj = Linear(dim, 3 * dim)  # Q, K, V
            nn.init.xavier_uniform_(self.in_proj.weight)
        else:
            self.q_proj, self.kv_proj = Linear(dim, dim), Linear(encoder_dim, 2 * dim)
            for weight in (self.q_proj.weight, *self.kv_proj.weight.detach().chunk(2)):
                nn.init.xavier_uniform_(weight, gain=2**-0.5)  # as in_proj
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
        source: Tensor | None = None,
        cache: Cache | None = None,
        weights: list[Tensor] | None = None,
        change_values: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Attend from the positions of ``x`` to themselves, or to an encoder output.

        :param x: [B, T, C]
        :param source: encoder output, [B, S, encoder_dim]
        :param cache: keys and values of earlier steps of a search; ``x`` is then its last position
        :param weights: list to which the attention weights [B, H, T, S] are appended
        :param change_values: maps the values [B, H, T, C/H] of ``x`` to those that are attended to
        :returns: [B, T, C]
        """
        if cache is not None:
            return self._step(x, mask, cache, source, weights, change_values)
        if source is None:
            q, k, v = self.split_heads(self.in_proj(x), 3)
        else:
            (q,), (k, v) = self.split_heads(self.q_proj(x), 1), self.split_heads(self.kv_proj(source), 2)
        if change_values is not None:
            v = change_values(v)
        bias = None if mask.bias is None else mask.bias.to(q.dtype)
        if self.relative_keys is not None:
            assert mask.offsets is not None
            bias = self._scaled_sum(bias, self.relative_keys(q, mask.offsets))  # [B, H, T, S]
        # PyTorch's attention cannot share noise, and on a CPU it is slow with dropout.
        drops_here = self.dropout.active and (self.dropout.shared or x.device.type == "cpu")
        if weights is None and self.relative_values is None and not drops_here:
            attended = self._fused(q, k, v, bias, mask.causal and self.relative_keys is None)
        else:
            attended = self._explicit(q, k, v, bias, mask.offsets, weights)
        return self.out_proj(attended.transpose(-3, -2).flatten(-2))

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
        shape = q.shape
        if q.dim() > 4:  # fast implementations take a single batch axis
            q, k, v = (x.flatten(0, -4) for x in (q, k, v))
            if bias is not None and bias.dim() > 3:
                bias = bias.expand(*shape[:-3], *bias.shape[-3:]).flatten(0, -4)
        mask = None if causal else bias
        return scaled_dot_product_attention(
            q, k, v, mask, self.dropout.active, is_causal=causal, scale=self.scale
        ).view(shape)

    def _explicit(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, offsets: Tensor | None, weights: list[Tensor] | None
    ) -> Tensor:
        probabilities = softmax(self._scaled_sum(bias, q @ k.transpose(-2, -1)))  # [B, H, T, S]
        if weights is not None:
            weights.append(probabilities)
        probabilities = self.dropout(probabilities)
        attended = probabilities @ v
        if self.relative_values is not None:
            assert offsets is not None
            attended = attended + self.relative_values(probabilities, offsets)
        return attended

    def _step(
        self,
        x: Tensor,
        mask: AttentionMask,
        cache: Cache,
        source: Tensor | None,
        weights: list[Tensor] | None,
        change_values: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:
        """Attend from the last position by few operators, whose calls take longer than what they compute.

        Heads are one more batch axis of products of matrices.

        :param x: [B, .., 1, C]
        :param mask: of a step, whose bias is [B · .. · H, 1, S], fewer rows where rows share keys
        :param cache: self-attention appends keys and values; those of the encoder output are computed once
        :param source: [B/k, S, encoder_dim]
        :param weights: list to which the attention weights [B, .., H, 1, S] are appended
        :param change_values: maps the values [B, .., H, 1, C/H] of ``x``
        :returns: [B, .., 1, C]
        """
        *batch, _, dim = x.shape
        heads, factor = self.heads, 1.0
        bias = None if mask.bias is None else mask.bias.to(x.dtype)
        if isinstance(cache, KeyValueCache):
            projected = self.in_proj(x)
            if weights is None and change_values is None and self.relative_values is None and not self.dropout.active:
                relative = None if self.relative_keys is None else self.relative_keys.weight
                attended = cache.attend(projected, heads, relative)
                if attended is not None:
                    return self.out_proj(attended)
            projected = projected.view(1, *batch, 3, heads, dim // heads).movedim(-3, 1)  # [1, 3, B, .., H, C/H]
            query, added = projected[:, 0].reshape(-1, 1, dim // heads), projected[:, 1:]  # [B · .. · H, 1, C/H]
            if change_values is not None:
                values = change_values(projected[0, 2].unsqueeze(-2)).squeeze(-2)
                added = torch.stack([projected[0, 1], values])[None]
            cache.write(added.detach())
            if self.relative_keys is not None:
                assert mask.offsets is not None
                positions, factor = self.relative_keys(query, mask.offsets), self.scale
                bias = positions if bias is None else positions + bias
        else:
            rows = len(x)
            if not cache.is_filled:
                assert source is not None
                key, value = self.split_heads(self.kv_proj(source), 2)
                cache.store(key, value, rows)
            query = self.q_proj(x).view(rows // cache.run, cache.run, heads, -1)  # [B/k, k, H, C/H]
            query = query.transpose(1, 2).reshape(-1, cache.run, dim // heads)  # [B/k · H, k, C/H]
        key, value = cache.read_heads()
        if bias is None:
            scores = torch.bmm(query * self.scale, key)  # [.. · H, 1 or k, S]
        else:
            scores = torch.baddbmm(bias, query, key, beta=factor, alpha=self.scale)
        probabilities = softmax(scores)

        def by_row(y: Tensor) -> Tensor:
            """[.. · H, 1 or k, S or C/H] -> [B, .., H, 1, S or C/H]"""
            if isinstance(cache, EncoderCache):
                y = y.view(len(x) // cache.run, heads, cache.run, -1).transpose(1, 2)  # [B/k, k, H, S or C/H]
            return y.reshape(*batch, heads, 1, y.size(-1))

        def by_head(y: Tensor) -> Tensor:
            """[B, .., H, 1, S] -> [.. · H, 1 or k, S]"""
            if isinstance(cache, EncoderCache):
                y = y.view(len(x) // cache.run, cache.run, heads, -1).transpose(1, 2)  # [B/k, H, k, S]
            return y.reshape(probabilities.shape)

        if weights is not None:
            weights.append(by_row(probabilities))
        if self.dropout.active:  # of --retain-dropout
            probabilities = by_head(self.dropout(by_row(probabilities)))
        out = torch.bmm(probabilities, value)
        if self.relative_values is not None:
            assert mask.offsets is not None
            out = out + self.relative_values(probabilities, mask.offsets)
        return self.out_proj(by_row(out).reshape(x.shape))

    def _scaled_sum(self, bias: Tensor | None, products: Tensor) -> Tensor:
        return products * self.scale if bias is None else torch.add(bias, products, alpha=self.scale)

    def split_heads(self, x: Tensor, parts: int) -> Sequence[Tensor]:
        """Divide maps of one input, [B, T, n · C] -> n tensors [B, H, T, C/H]."""
        return [projected.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for projected in x.chunk(parts, dim=-1)]

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        join_projections(state_dict)  # PyTorch passes a copy with the parameters of this module alone
        super()._load_from_state_dict(state_dict, prefix, *arguments)
