"""Builds the layers of encoder and decoder from fairseq's configuration."""

from __future__ import annotations

from fairseq import utils
from fairseq.models.transformer import TransformerConfig

from ode_transformer.nn import FeedForward, Layer, MultiheadAttention, SubLayer


def _feed_forward(cfg: TransformerConfig, dim: int, inner_dim: int) -> SubLayer:
    # relu_dropout is the name under which old configurations know activation_dropout.
    dropout = float(cfg.activation_dropout or cfg.relu_dropout or 0)
    activation = utils.get_activation_fn(cfg.activation_fn)
    return SubLayer(FeedForward(dim, inner_dim, activation, dropout), dim, cfg.dropout)


def _self_attention(cfg: TransformerConfig, dim: int, heads: int) -> SubLayer:
    attention = MultiheadAttention(dim, heads, cfg.attention_dropout, max_relative_positions=cfg.max_relative_positions)
    return SubLayer(attention, dim, cfg.dropout)


def encoder_layer(cfg: TransformerConfig) -> Layer:
    """Self-attention and feed-forward network."""
    stack = cfg.encoder
    return Layer(
        {
            "self_attn": _self_attention(cfg, stack.embed_dim, stack.attention_heads),
            "ffn": _feed_forward(cfg, stack.embed_dim, stack.ffn_embed_dim),
        }
    )


def decoder_layer(cfg: TransformerConfig) -> Layer:
    """Self-attention, attention over the encoder's output, feed-forward network."""
    stack = cfg.decoder
    cross = MultiheadAttention(
        stack.embed_dim, stack.attention_heads, cfg.attention_dropout, memory_dim=cfg.encoder.embed_dim
    )
    return Layer(
        {
            "self_attn": _self_attention(cfg, stack.embed_dim, stack.attention_heads),
            "encoder_attn": SubLayer(cross, stack.embed_dim, cfg.dropout),
            "ffn": _feed_forward(cfg, stack.embed_dim, stack.ffn_embed_dim),
        }
    )
