"""Builds one stack of layers from its choice: the one place that knows how a model builds and calls its stacks."""

import zlib
from functools import cache

import torch
from models_for_tests import batch, teacher_forced
from torch import Tensor, nn

from ode_transformer.nn import (
    PADDING,
    Decoder,
    DepthChoice,
    Encoder,
    EncoderOutput,
    GridChoice,
    GridDecoder,
    TransformerSizes,
)

DIM, WORDS = 8, 20
# Kinds of stacks, with the number of attentions in their layers.
ATTENTIONS = {"encoder": 1, "language model": 1, "decoder": 2, "grid": 2}


def build_stack(choice: DepthChoice, kind: str, layers: int, dropout: float = 0.0, **joint: str) -> nn.Module:
    """Build a stack in float64.

    :param kind: one of ``ATTENTIONS``
    :param joint: options of a grid, all of them
    """
    sizes = TransformerSizes(
        WORDS,
        dim=DIM,
        heads=2,
        ffn=12,
        encoder_layers=layers,
        decoder_layers=layers,
        max_source_positions=8,
        max_target_positions=8,
        activation="gelu",  # a network of a few units of relu has none that is active
        dropout=dropout,
    )
    embedding = nn.Embedding(WORDS, DIM, padding_idx=PADDING)
    stack: nn.Module
    if kind == "encoder":
        stack = Encoder(sizes, choice, embedding)
    elif kind == "grid":
        grid = GridChoice(**{name.removeprefix("joint_"): value for name, value in joint.items()})
        stack = GridDecoder(sizes, choice, embedding, grid)
    else:
        stack = Decoder(sizes, choice, embedding, attends=kind == "decoder")
    return stack.double()


@cache
def drawn(name: str, shape: torch.Size) -> Tensor:
    """Return random values of a parameter, which its name decides."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    size = 0.5 if len(shape) == 1 else shape[-1] ** -0.5
    if "coefficients" in name and name.endswith("projection.weight"):
        size *= 1e-4  # it reads increments, which grow from block to block: a wide open gate has no gradient
    return size * torch.randn(shape, generator=generator, dtype=torch.float64)


@torch.no_grad()
def draw_parameters(stack: nn.Module) -> None:
    """Draw all parameters at random, those of equal names equally; ε of a normalisation hides no scale."""
    for name, parameter in stack.named_parameters():
        parameter.copy_(drawn(name, parameter.shape))
    for module in stack.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-30


@cache
def texts() -> tuple[Tensor, Tensor, Tensor]:
    """Return source words, a target prefix, and an encoder output, [B, S], [B, T], [B, S, C]."""
    source, target = batch([4, 3], vocabulary=WORDS), teacher_forced(batch([5, 3], seed=1, vocabulary=WORDS))
    generator = torch.Generator().manual_seed(0)
    return source, target, torch.randn(*source.shape, DIM, generator=generator, dtype=torch.float64)


def run_stack(stack: nn.Module, kind: str) -> Tensor:
    """Return what the stack computes for :func:`texts`, without padding, [positions, C]."""
    source, target, encoder_output = texts()
    if kind == "encoder":
        return stack(source).output[source.ne(PADDING)]
    encoded = None if kind == "language model" else EncoderOutput(encoder_output, source.eq(PADDING))
    features, _ = stack.features(target, encoded)
    return features[target.ne(PADDING)]
