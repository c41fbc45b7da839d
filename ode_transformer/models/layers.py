"""Builds the layers of encoder and decoder from fairseq's configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairseq.models.transformer import TransformerConfig
from torch import nn

from ode_transformer.models.depth_stack import depth_choice, feed_forward_options
from ode_transformer.nn import FeedForward, Layer, MultiheadAttention, SubLayer
from ode_transformer.numerics import SPLITTINGS, Splitting

# Builds what a sub-layer computes: (options, stack, share of a step) -> module.
Function = Callable[[TransformerConfig, str, float], nn.Module]


def _feed_forward(cfg: TransformerConfig, stack: str, share: float) -> nn.Module:
    """Of the inner size it has the share of a step that it takes: two halves have the parameters of a whole one."""
    sizes = getattr(cfg, stack)
    inner = share * sizes.ffn_embed_dim
    if not inner.is_integer():
        raise ValueError(
            f"--{stack}-ffn-embed-dim {sizes.ffn_embed_dim} is divided between the two feed-forward networks of a "
            f"layer and has to be even"
        )
    return FeedForward(sizes.embed_dim, int(inner), *feed_forward_options(cfg))


def _self_attention(cfg: TransformerConfig, stack: str, share: float) -> nn.Module:
    sizes = getattr(cfg, stack)
    return MultiheadAttention(
        sizes.embed_dim,
        sizes.attention_heads,
        cfg.attention_dropout,
        max_relative_positions=cfg.max_relative_positions,
        relative_values=cfg.relative_values,
    )


def _cross_attention(cfg: TransformerConfig, stack: str, share: float) -> nn.Module:
    sizes = getattr(cfg, stack)
    return MultiheadAttention(
        sizes.embed_dim, sizes.attention_heads, cfg.attention_dropout, encoder_dim=cfg.encoder.embed_dim
    )


# What makes up diffusion and convection in a layer, without and with a memory to read: name and function of each
# sub-layer.
_PLAIN: dict[str, tuple[tuple[str, Function], ...]] = {
    "diffusion": (("self_attn", _self_attention),),
    "convection": (("ffn", _feed_forward),),
}
FIELDS = {False: _PLAIN, True: _PLAIN | {"diffusion": (*_PLAIN["diffusion"], ("encoder_attn", _cross_attention))}}


def sublayers(splitting: Splitting, cross_attention: bool) -> dict[str, tuple[Function, float]]:
    """The sub-layers of a layer in the order in which they act: name, function, share of a step.

    A field that acts twice has two sub-layers, called ``_down`` and ``_up`` (Macaron Net, Eqs. 17 and 19).

    :param memory: the layer attends to another stack's output, too
    """
    acting = [field for field, _ in splitting.parts]
    made = {}
    for number, (field, share) in enumerate(splitting.parts):
        half = "" if acting.count(field) == 1 else "_up" if field in acting[:number] else "_down"
        made |= {name + half: (function, share) for name, function in FIELDS[cross_attention][field]}
    return made


def build_layer(cfg: TransformerConfig, stack: str, cross_attention: bool = False) -> Layer:
    """One layer of the stack 'encoder' or 'decoder', which may read a memory."""
    sizes, choice = getattr(cfg, stack), depth_choice(cfg, stack)
    parts = sublayers(SPLITTINGS[choice.splitting], cross_attention)

    def sublayer(name: str) -> SubLayer:
        function, share = parts[name]
        dim, before = sizes.embed_dim, sizes.normalize_before
        return SubLayer(function(cfg, stack, share), dim, cfg.dropout, before, share, normalized=choice.normalizes)

    return assemble(cfg, stack, tuple(parts), sublayer)


def assemble(cfg: TransformerConfig, stack: str, names: Sequence[str], build: Callable[[str], SubLayer]) -> Layer:
    """A layer of those sub-layers ``names`` that the choice steps or, beside it, applies.

    Stepped ones have as many copies as the choice asks.
    """
    choice = depth_choice(cfg, stack).without_unused_options()
    return Layer(
        {
            name: nn.ModuleList(build(name) for _ in range(choice.copies))
            if choice.copies > 1 and stepped
            else build(name)
            for group, stepped in choice.grouping(names)
            for name in group
        }
    )
