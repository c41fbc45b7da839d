"""Builds the layers of encoder and decoder from fairseq's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairseq import utils
from fairseq.models.transformer import TransformerConfig
from torch import nn

from ode_transformer.modules.depth import depth_choice
from ode_transformer.nn import FeedForward, Layer, MultiheadAttention, SubLayer


def _feed_forward(cfg: TransformerConfig, stack: str) -> nn.Module:
    sizes = getattr(cfg, stack)
    # relu_dropout is the name under which old configurations know activation_dropout.
    dropout = float(cfg.activation_dropout or cfg.relu_dropout or 0)
    return FeedForward(sizes.embed_dim, sizes.ffn_embed_dim, utils.get_activation_fn(cfg.activation_fn), dropout)


def _self_attention(cfg: TransformerConfig, stack: str) -> nn.Module:
    sizes = getattr(cfg, stack)
    return MultiheadAttention(
        sizes.embed_dim,
        sizes.attention_heads,
        cfg.attention_dropout,
        max_relative_positions=cfg.max_relative_positions,
        relative_values=cfg.relative_values,
    )


def _cross_attention(cfg: TransformerConfig, stack: str) -> nn.Module:
    sizes = getattr(cfg, stack)
    return MultiheadAttention(
        sizes.embed_dim, sizes.attention_heads, cfg.attention_dropout, memory_dim=cfg.encoder.embed_dim
    )


# What the sub-layers of a layer are, in the order in which they act.
SUBLAYERS: dict[str, Mapping[str, Callable[[TransformerConfig, str], nn.Module]]] = {
    "encoder": {"self_attn": _self_attention, "ffn": _feed_forward},
    "decoder": {"self_attn": _self_attention, "encoder_attn": _cross_attention, "ffn": _feed_forward},
}


def build_layer(cfg: TransformerConfig, stack: str) -> Layer:
    """One layer of the stack 'encoder' or 'decoder'; its stepped sub-layers have as many copies as the choice asks."""
    sizes, choice, functions = getattr(cfg, stack), depth_choice(cfg, stack), SUBLAYERS[stack]

    def sublayer(name: str) -> SubLayer:
        function = functions[name](cfg, stack)
        return SubLayer(function, sizes.embed_dim, cfg.dropout, sizes.normalize_before)

    stepped = {name for names, stepped in choice.grouping(tuple(functions)) if stepped for name in names}
    return Layer(
        {
            name: nn.ModuleList(sublayer(name) for _ in range(choice.copies))
            if choice.copies > 1 and name in stepped
            else sublayer(name)
            for name in functions
        }
    )
