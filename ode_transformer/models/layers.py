"""Builds layers from fairseq's configuration: those of encoder and decoder, and those of a source × target grid."""

from collections.abc import Mapping

from fairseq.models.transformer import TransformerConfig
from torch import nn

from ode_transformer.models.depth_stack import feed_forward_options
from ode_transformer.nn import (
    PLAIN_ATTENTION,
    DepthChoice,
    FeedForward,
    Layer,
    MultiheadAttention,
    SourceAxisAttention,
    SubLayer,
    SubLayerKind,
    joint_width,
)
from ode_transformer.numerics import SPLITTINGS, Splitting
from ode_transformer.support.errors import OptionError

_ATTENTIONS = {"self_attn": SubLayerKind.SELF_ATTENTION, "encoder_attn": SubLayerKind.CROSS_ATTENTION}


def plan_layer(splitting: Splitting, cross_attention: bool) -> dict[str, tuple[SubLayerKind, float]]:
    """Return the sub-layers of a layer by name, in the order in which they act: kind, and fraction of a step.

    A field that acts twice has two sub-layers, called ``_down`` and ``_up`` (Macaron Net, Eqs. 17 and 19).
    """
    attentions = [name for name in _ATTENTIONS if cross_attention or name == "self_attn"]
    order = [field for field, _ in splitting]
    plan: dict[str, tuple[SubLayerKind, float]] = {}
    for number, (field, fraction) in enumerate(splitting):
        half = "" if order.count(field) == 1 else "_up" if field in order[:number] else "_down"
        for name in attentions if field == "diffusion" else ["ffn"]:
            plan[name + half] = _ATTENTIONS.get(name, SubLayerKind.FEED_FORWARD), fraction
    return plan


# The layers of a source × target grid (Reformer, Figure 2a): target attention, FFN, source attention, FFN. Their
# sub-layers are those of every other layer, so that depth schemes and relative positions apply to them, too.
_JOINT_PLAN = {
    "self_attn_target": (SubLayerKind.TARGET_ATTENTION, 1.0),
    "ffn_target": (SubLayerKind.FEED_FORWARD, 1.0),
    "self_attn_source": (SubLayerKind.SOURCE_ATTENTION, 1.0),
    "ffn_source": (SubLayerKind.FEED_FORWARD, 1.0),
}

# Shared noise (Figure 2b): Dropout1d along the axis that is not attended, Dropout2d along both.
JOINT_DROPOUTS = ("shared", "independent")
_SOURCE, _TARGET = 1, 2  # axes of a grid
_NOISE_AXES = {
    SubLayerKind.TARGET_ATTENTION: (_SOURCE,),
    SubLayerKind.SOURCE_ATTENTION: (_TARGET,),
    SubLayerKind.FEED_FORWARD: (_SOURCE, _TARGET),
}


def build_layer(cfg: TransformerConfig, stack: str, cross_attention: bool = False) -> Layer:
    """Build one layer of the stack 'encoder' or 'decoder', with or without attention to an encoder output."""
    sizes = getattr(cfg, stack)
    plan = plan_layer(SPLITTINGS[sizes.depth.splitting], cross_attention)
    return _build_layer(cfg, stack, sizes.embed_dim, plan, {})


def build_joint_layer(cfg: TransformerConfig) -> Layer:
    """Build one joint layer, whose width is that of the grid."""
    width = joint_width(cfg.encoder.embed_dim, cfg.decoder.embed_dim, cfg.joint_combination)
    return _build_layer(cfg, "decoder", width, _JOINT_PLAN, _NOISE_AXES if cfg.joint_dropout == "shared" else {})


def _build_layer(
    cfg: TransformerConfig,
    stack: str,
    width: int,
    plan: Mapping[str, tuple[SubLayerKind, float]],
    noise_axes: Mapping[SubLayerKind, tuple[int, ...]],
) -> Layer:
    """Build the layer from the sub-layers that the depth choice uses, each stepped one with as many copies as it asks.

    :param noise_axes: axes along which dropout shares its noise
    """
    sizes = getattr(cfg, stack)
    choice: DepthChoice = sizes.depth
    heads, dropout = sizes.attention_heads, cfg.attention_dropout

    def build(name: str) -> SubLayer:
        kind, fraction = plan[name]
        noise = noise_axes.get(kind, ())
        function: nn.Module
        if kind is SubLayerKind.FEED_FORWARD:
            # Two networks of half a step have as many parameters as a whole one.
            inner = fraction * sizes.ffn_embed_dim
            if not inner.is_integer():
                raise OptionError(
                    f"--{stack}-ffn-embed-dim {sizes.ffn_embed_dim} is divided between the two feed-forward networks "
                    f"of a layer and has to be even"
                )
            function = FeedForward(width, int(inner), *feed_forward_options(cfg), shared_noise=noise)
        elif kind is SubLayerKind.CROSS_ATTENTION:
            function = MultiheadAttention(width, heads, dropout, PLAIN_ATTENTION, cfg.encoder.embed_dim)
        else:
            attention = SourceAxisAttention if kind is SubLayerKind.SOURCE_ATTENTION else MultiheadAttention
            weight_noise = (1,) if noise else ()  # the weights of all lines are [B, lines, H, D, D]
            function = attention(width, heads, dropout, choice.attention, shared_noise=weight_noise)
        pre_norm, normalized = sizes.normalize_before, choice.normalizes_sublayers
        return SubLayer(kind, function, width, cfg.dropout, pre_norm, fraction, normalized, noise)

    return Layer(
        {
            name: nn.ModuleList(build(name) for _ in range(choice.copies))
            if choice.copies > 1 and stepped
            else build(name)
            for group, stepped in choice.grouping({name: kind for name, (kind, _) in plan.items()})
            for name in group
        }
    )
