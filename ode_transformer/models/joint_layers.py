"""The layers of a source × target grid (Reformer, Figure 2a): target attention, FFN, source attention, FFN.

Their sub-layers are those of every other layer, so that depth schemes and relative positions go with them.
Axes: B batch, S source, T target, C channels. A grid is [B, S, T, C].
"""

from __future__ import annotations

from fairseq.models.transformer import TransformerConfig
from torch import nn

from ode_transformer.models.depth_stack import depth_choice, feed_forward_options
from ode_transformer.models.layers import assemble
from ode_transformer.nn import (
    SOURCE_AXIS,
    TARGET_AXIS,
    FeedForward,
    Layer,
    SeparableAttention,
    SubLayer,
    joint_width,
    kind,
)

# Shared noise (Figure 2b): Dropout1d along the axis that is not attended, Dropout2d along both.
JOINT_DROPOUTS = ("shared", "independent")
_SOURCE, _TARGET = 1, 2  # axes of a grid
NOISE_AXES = {
    "self_attn_target": (_SOURCE,),
    "ffn_target": (_SOURCE, _TARGET),
    "self_attn_source": (_TARGET,),
    "ffn_source": (_SOURCE, _TARGET),
}


def build_joint_layer(cfg: TransformerConfig) -> Layer:
    """One joint layer, whose width is that of the grid."""
    sizes, width = cfg.decoder, joint_width(cfg.encoder.embed_dim, cfg.decoder.embed_dim, cfg.joint_combination)
    normalized = depth_choice(cfg, "decoder").normalizes
    shared = cfg.joint_dropout == "shared"

    def sublayer(name: str) -> SubLayer:
        noise = NOISE_AXES[name] if shared else ()
        function: nn.Module
        if kind(name) == "ffn":
            function = FeedForward(width, sizes.ffn_embed_dim, *feed_forward_options(cfg), shared_noise=noise)
        else:
            function = SeparableAttention(
                TARGET_AXIS if name.endswith(TARGET_AXIS) else SOURCE_AXIS,
                width,
                sizes.attention_heads,
                cfg.attention_dropout,
                shared,
                cfg.max_relative_positions,
                cfg.relative_values,
            )
        return SubLayer(function, width, cfg.dropout, sizes.normalize_before, normalized=normalized, shared_noise=noise)

    return assemble(cfg, "decoder", tuple(NOISE_AXES), sublayer)
