"""Builds the layers of a stack from sizes and a depth choice: those of encoder and decoder, and those of a grid."""

from collections.abc import Mapping

from torch import nn

from ode_transformer.nn.attention import MultiheadAttention
from ode_transformer.nn.attention_scores import PLAIN_ATTENTION
from ode_transformer.nn.context import SubLayerKind
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.grid import SourceAxisAttention
from ode_transformer.nn.layer import AttentionLayer, Group, Layer, LayerPlan
from ode_transformer.nn.sizes import ACTIVATIONS, TransformerSizes
from ode_transformer.nn.sublayers import (
    CrossAttention,
    FeedForward,
    FeedForwardSubLayer,
    SelfAttention,
    SourceAttention,
    SubLayer,
    TargetAttention,
)
from ode_transformer.numerics import Splitting

# The sub-layers of a layer by name, in the order in which they act: class, and fraction of a step
SubLayerPlan = Mapping[str, tuple[type[SubLayer], float]]

_ATTENTIONS: dict[str, type[SubLayer]] = {"self_attn": SelfAttention, "encoder_attn": CrossAttention}

# The layers of a source × target grid (Reformer, Figure 2a): target attention, FFN, source attention, FFN. Their
# sub-layers are those of every other layer, so that depth schemes and relative positions apply to them, too.
GRID_PLAN: SubLayerPlan = {
    "self_attn_target": (TargetAttention, 1.0),
    "ffn_target": (FeedForwardSubLayer, 1.0),
    "self_attn_source": (SourceAttention, 1.0),
    "ffn_source": (FeedForwardSubLayer, 1.0),
}

# Shared noise (Figure 2b): Dropout1d along the axis that is not attended, Dropout2d along both.
_SOURCE, _TARGET = 1, 2  # axes of a grid
GRID_NOISE: dict[SubLayerKind, tuple[int, ...]] = {
    SubLayerKind.TARGET_ATTENTION: (_SOURCE,),
    SubLayerKind.SOURCE_ATTENTION: (_TARGET,),
    SubLayerKind.FEED_FORWARD: (_SOURCE, _TARGET),
}


def plan_sublayers(splitting: Splitting, cross_attention: bool) -> SubLayerPlan:
    """Return the sub-layers of a layer.

    A field that acts twice has two sub-layers, called ``_down`` and ``_up`` (Macaron Net, Eqs. 17 and 19).
    """
    attentions = [name for name in _ATTENTIONS if cross_attention or name == "self_attn"]
    order = [field for field, _ in splitting]
    plan: dict[str, tuple[type[SubLayer], float]] = {}
    for number, (field, fraction) in enumerate(splitting):
        half = "" if order.count(field) == 1 else "_up" if field in order[:number] else "_down"
        for name in attentions if field == "diffusion" else ["ffn"]:
            plan[name + half] = _ATTENTIONS.get(name, FeedForwardSubLayer), fraction
    return plan


def plan_layers(choice: DepthChoice, kinds: Mapping[str, SubLayerKind], layers: int) -> list[LayerPlan]:
    """Return the place of each layer of a stack, and which of its blocks are stepped.

    :param kinds: kind of each sub-layer by name, in the order in which they act
    """
    blocks, plans, first_block = stepped_groups(choice, kinds), [], 0
    for index in range(layers):
        of_layer = blocks if index in choice.stepped_layers(layers) else ((tuple(kinds), False),)
        plans.append(LayerPlan(index, of_layer, first_block, choice.function))
        first_block += sum(is_stepped for _, is_stepped in of_layer)
    return plans


def stepped_groups(choice: DepthChoice, kinds: Mapping[str, SubLayerKind]) -> tuple[Group, ...]:
    """Return the blocks of a layer; the scheme of a depth-wise LSTM reads all attentions of a layer at once."""
    groups = choice.grouping(kinds)
    if choice.is_lstm:
        return ((tuple(name for names, _ in groups for name in names), True),)
    return tuple(groups)


def build_layers(
    sizes: TransformerSizes,
    stack: str,
    choice: DepthChoice,
    plan: SubLayerPlan,
    width: int | None = None,
    noise_axes: Mapping[SubLayerKind, tuple[int, ...]] | None = None,
) -> nn.ModuleList:
    """Build all layers of a stack.

    :param stack: encoder or decoder
    :param width: of the representation; the stack's by default
    :param noise_axes: axes along which dropout shares its noise
    """
    kinds = {name: sublayer.kind for name, (sublayer, _) in plan.items()}
    of_class = AttentionLayer if choice.is_lstm else Layer
    layers: int = getattr(sizes, stack).layers
    return nn.ModuleList(
        of_class(_build_sublayers(sizes, stack, choice, plan, width, noise_axes or {}), of_layer)
        for of_layer in plan_layers(choice, kinds, layers)
    )


def _build_sublayers(
    sizes: TransformerSizes,
    stack: str,
    choice: DepthChoice,
    plan: SubLayerPlan,
    width: int | None,
    noise_axes: Mapping[SubLayerKind, tuple[int, ...]],
) -> dict[str, nn.Module]:
    """Build the sub-layers that the choice uses, each stepped one with as many copies as it asks for."""
    own = getattr(sizes, stack)
    dim = width or own.dim

    def build(name: str) -> SubLayer:
        of_class, fraction = plan[name]
        noise = noise_axes.get(of_class.kind, ())
        function: nn.Module
        if of_class is FeedForwardSubLayer:
            inner = fraction * own.ffn  # two networks of half a step have as many parameters as a whole one
            if not inner.is_integer():
                raise ValueError(
                    f"--{stack}-ffn-embed-dim {own.ffn} is divided between the two feed-forward networks of a layer "
                    f"and has to be even"
                )
            activation = ACTIVATIONS[sizes.activation]
            function = FeedForward(dim, int(inner), activation, sizes.activation_dropout, shared_noise=noise)
        elif of_class is CrossAttention:
            function = MultiheadAttention(dim, own.heads, sizes.attention_dropout, PLAIN_ATTENTION, sizes.encoder.dim)
        else:
            attention = SourceAxisAttention if of_class is SourceAttention else MultiheadAttention
            weight_noise = (1,) if noise else ()  # the weights of all lines are [B, lines, H, D, D]
            function = attention(dim, own.heads, sizes.attention_dropout, choice.attention, shared_noise=weight_noise)
        pre_norm, normalized = choice.normalize_before, choice.normalizes_sublayers
        return of_class(function, dim, sizes.dropout, pre_norm, fraction, normalized, noise)

    kinds = {name: sublayer.kind for name, (sublayer, _) in plan.items()}
    return {
        name: nn.ModuleList(build(name) for _ in range(choice.copies))
        if choice.copies > 1 and is_stepped
        else build(name)
        for group, is_stepped in choice.grouping(kinds)
        for name in group
    }
