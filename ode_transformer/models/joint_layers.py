"""The layers of a source × target grid (Reformer, Figure 2a): target attention, FFN, source attention, FFN.

Their sub-layers are those of every other layer, so that depth schemes and relative positions apply to them, too.
Axes: B batch, S source, T target, C channels. A grid is [B, S, T, C].
"""

from __future__ import annotations

from fairseq.models.transformer import TransformerConfig
from torch import nn

from ode_transformer.models.depth_stack import depth_choice, feed_forward_options
from ode_transformer.models.layers import assemble_layer
from ode_transformer.nn import (
    SOURCE_AXIS,
    TARGET_AXIS,
    FeedForward,
    Layer,
    SeparableAttention,
    SubLayer,
    SubLayerKind,
    joint_width,
)

JOINT_KINDS = {
    "self_attn_target": SubLayerKind.TARGET_ATTENTION,
    "ffn_target": SubLayerKind.FEED_FORWARD,
    "self_attn_source": SubLayerKind.SOURCE_ATTENTION,
    "ffn_source": SubLayerKind.FEED_FORWARD,
}
_ATTENDED_AXIS = {SubLayerKind.TARGET_ATTENTION: TARGET_AXIS, SubLayerKind.SOURCE_ATTENTION: SOURCE_AXIS}

# Shared noise (Figure 2b): Dropout1d along the axis that is not attended, Dropout2d along both.
JOINT_DROPOUTS = ("shared", "independent")
_SOURCE, _TARGET = 1, 2  # axes of a grid
_NOISE_AXES = {
    SubLayerKind.TARGET_ATTENTION: (_SOURCE,),
    SubLayerKind.SOURCE_ATTENTION: (_TARGET,),
    SubLayerKind.FEED_FORWARD: (_SOURCE, _TARGET),
}


def build_joint_layer(cfg: TransformerConfig) -> Layer:
    """Build one joint layer, whose width is that of the grid."""
    sizes, width = cfg.decoder, joint_width(cfg.encoder.embed_dim, cfg.decoder.embed_dim, cfg.joint_combination)
    choice = depth_choice(cfg, "decoder")
    shared = cfg.joint_dropout == "shared"

    def sublayer(name: str) -> SubLayer:
        kind = JOINT_KINDS[name]
        noise = _NOISE_AXES[kind] if shared else ()
        function: nn.Module
        if kind is SubLayerKind.FEED_FORWARD:
            function = FeedForward(width, sizes.ffn_embed_dim, *feed_forward_options(cfg), shared_noise=noise)
        else:
            function = SeparableAttention(
                _ATTENDED_AXIS[kind],
                width,
                sizes.attention_heads,
                cfg.attention_dropout,
                choice.attention,
                shared,
            )
        pre_norm = sizes.normalize_before
        return SubLayer(
            kind, function, width, cfg.dropout, pre_norm, normalized=choice.normalizes_sublayers, shared_noise=noise
        )

    return assemble_layer(cfg, "decoder", JOINT_KINDS, sublayer)
