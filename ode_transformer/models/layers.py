"""Builds layers from fairseq's configuration: those of encoder and decoder, and those of a source × target grid."""

from collections.abc import Callable, Mapping

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


def _build_function(cfg: TransformerConfig, stack: str, kind: SubLayerKind, fraction: float) -> nn.Module:
    """Build the function of a sub-layer; two networks of half a step have as many parameters as a whole one."""
    sizes = getattr(cfg, stack)
    if kind is SubLayerKind.FEED_FORWARD:
        inner = fraction * sizes.ffn_embed_dim
        if not inner.is_integer():
            raise OptionError(
                f"--{stack}-ffn-embed-dim {sizes.ffn_embed_dim} is divided between the two feed-forward networks of a "
                f"layer and has to be even"
            )
        return FeedForward(sizes.embed_dim, int(inner), *feed_forward_options(cfg))
    over_source = kind is SubLayerKind.CROSS_ATTENTION
    return MultiheadAttention(
        sizes.embed_dim,
        sizes.attention_heads,
        cfg.attention_dropout,
        PLAIN_ATTENTION if over_source else sizes.depth.attention,
        cfg.encoder.embed_dim if over_source else None,
    )


def build_layer(cfg: TransformerConfig, stack: str, cross_attention: bool = False) -> Layer:
    """Build one layer of the stack 'encoder' or 'decoder', with or without attention to an encoder output."""
    sizes = getattr(cfg, stack)
    choice: DepthChoice = sizes.depth
    plan = plan_layer(SPLITTINGS[choice.splitting], cross_attention)

    def sublayer(name: str) -> SubLayer:
        kind, fraction = plan[name]
        function = _build_function(cfg, stack, kind, fraction)
        normalized = choice.normalizes_sublayers
        return SubLayer(
            kind, function, sizes.embed_dim, cfg.dropout, sizes.normalize_before, fraction, normalized=normalized
        )

    return assemble_layer(cfg, stack, {name: kind for name, (kind, _) in plan.items()}, sublayer)


def assemble_layer(
    cfg: TransformerConfig, stack: str, kinds: Mapping[str, SubLayerKind], build: Callable[[str], SubLayer]
) -> Layer:
    """Build the layer from the sub-layers that the depth choice uses, each stepped one with as many copies as it asks.

    :param kinds: kind of each possible sub-layer by name, in the order in which they act
    :param build: builds a sub-layer by name
    """
    choice: DepthChoice = getattr(cfg, stack).depth
    return Layer(
        {
            name: nn.ModuleList(build(name) for _ in range(choice.copies))
            if choice.copies > 1 and stepped
            else build(name)
            for group, stepped in choice.grouping(kinds)
            for name in group
        }
    )


# The layers of a source × target grid (Reformer, Figure 2a): target attention, FFN, source attention, FFN. Their
# sub-layers are those of every other layer, so that depth schemes and relative positions apply to them, too.
JOINT_KINDS = {
    "self_attn_target": SubLayerKind.TARGET_ATTENTION,
    "ffn_target": SubLayerKind.FEED_FORWARD,
    "self_attn_source": SubLayerKind.SOURCE_ATTENTION,
    "ffn_source": SubLayerKind.FEED_FORWARD,
}

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
    choice: DepthChoice = sizes.depth
    shared = cfg.joint_dropout == "shared"

    def sublayer(name: str) -> SubLayer:
        kind = JOINT_KINDS[name]
        noise = _NOISE_AXES[kind] if shared else ()
        function: nn.Module
        if kind is SubLayerKind.FEED_FORWARD:
            function = FeedForward(width, sizes.ffn_embed_dim, *feed_forward_options(cfg), shared_noise=noise)
        else:
            attention = SourceAxisAttention if kind is SubLayerKind.SOURCE_ATTENTION else MultiheadAttention
            function = attention(
                width,
                sizes.attention_heads,
                cfg.attention_dropout,
                choice.attention,
                shared_noise=(1,) if shared else (),  # the weights of all lines are [B, lines, H, D, D]
            )
        pre_norm = sizes.normalize_before
        return SubLayer(
            kind, function, width, cfg.dropout, pre_norm, normalized=choice.normalizes_sublayers, shared_noise=noise
        )

    return assemble_layer(cfg, "decoder", JOINT_KINDS, sublayer)
