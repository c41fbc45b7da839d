"""Builds a stack of layers from plain data: the one place that knows how tests of ``nn`` build and call one."""

import zlib
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.nn import (
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


def build_stack(choice: DepthChoice, grid: GridChoice, kind: str, layers: int, **sizes: Any) -> nn.Module:
    """Build a stack in float64, without dropout unless ``sizes`` has some.

    :param kind: one of ``ATTENTIONS``
    :param sizes: further fields of ``TransformerSizes``
    """
    plain = {"dropout": 0.0, "max_source_positions": 8, "max_target_positions": 8}
    # A network of a few units of relu may have none that is active.
    plain |= {"dim": DIM, "heads": 2, "ffn": 12, "encoder_layers": layers, "decoder_layers": layers, **sizes}
    arguments = TransformerSizes(WORDS, **{"activation": "gelu", **plain}), choice, nn.Embedding(WORDS, DIM, 1)
    if kind == "encoder":
        return Encoder(*arguments).double()
    if kind == "grid":
        return GridDecoder(*arguments, grid).double()
    return Decoder(*arguments, attends=kind == "decoder").double()


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


# Texts of words from 4 on, 1 is padding and 2 the end of a sentence, with which a target begins.
SOURCE = torch.tensor([[7, 12, 5, 2], [9, 4, 2, 1]])
TARGET = torch.tensor([[2, 8, 15, 6, 11], [2, 13, 10, 1, 1]])


def run_stack(stack: Any, kind: str) -> Tensor:
    """Return what the stack computes for two texts, without padding, [positions, C]."""
    if kind == "encoder":
        return stack(SOURCE).output[SOURCE.ne(1)]
    generator = torch.Generator().manual_seed(0)
    encoded = torch.randn(*SOURCE.shape, DIM, generator=generator, dtype=torch.float64)
    source = None if kind == "language model" else EncoderOutput(encoded, SOURCE.eq(1))
    return stack.features(TARGET, source)[0][TARGET.ne(1)]
