"""Builds one stack of layers from its choice: the one place that knows how a model builds and calls its stacks."""

import zlib
from functools import cache

import torch
from fairseq.models.transformer import TransformerConfig
from models_for_tests import batch, teacher_forced
from torch import Tensor, nn

from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.model_from_options import numbered_dictionary
from ode_transformer.models.reformer_stacks import ReformerDecoder
from ode_transformer.nn import DepthChoice

DIM, WORDS = 8, 20
# Kinds of stacks, with the number of attentions in their layers.
ATTENTIONS = {"encoder": 1, "language model": 1, "decoder": 2, "grid": 2}


def build_stack(choice: DepthChoice, kind: str, layers: int, dropout: float = 0.0, **joint: object) -> nn.Module:
    """Build a stack in float64.

    :param kind: one of ``ATTENTIONS``
    :param joint: options of a grid, all of them
    """
    cfg = TransformerConfig()
    for sizes in (cfg.encoder, cfg.decoder):
        sizes.embed_dim, sizes.ffn_embed_dim, sizes.layers, sizes.attention_heads = DIM, 12, layers, 2
        sizes.depth, sizes.normalize_before = choice, choice.normalize_before
    cfg.decoder.input_dim = cfg.decoder.output_dim = DIM
    cfg.max_source_positions = cfg.max_target_positions = 8
    cfg.activation_fn = "gelu"  # a network of a few units of relu has none that is active
    cfg.dropout, cfg.word_dropout_prob, cfg.cpu_bf16, cfg.ode_options_saved = dropout, 0.0, False, False
    for name, value in {"max_joint_cells": 0, **joint}.items():
        setattr(cfg, name, value)
    arguments = cfg, numbered_dictionary(WORDS), nn.Embedding(WORDS, DIM, padding_idx=1)
    stack: nn.Module
    if kind == "encoder":
        stack = ODETransformerEncoder(*arguments)
    elif kind == "grid":
        stack = ReformerDecoder(*arguments)
    else:
        stack = ODETransformerDecoder(*arguments, no_encoder_attn=kind == "language model")
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
    """Return source words, a target prefix, and an encoder output, [B, S], [B, T], [S, B, C]."""
    source, target = batch([4, 3], vocabulary=WORDS), teacher_forced(batch([5, 3], seed=1, vocabulary=WORDS))
    generator = torch.Generator().manual_seed(0)
    return source, target, torch.randn(*source.t().shape, DIM, generator=generator, dtype=torch.float64)


def run_stack(stack: nn.Module, kind: str) -> Tensor:
    """Return what the stack computes for :func:`texts`, without padding, [positions, C]."""
    source, target, encoder_output = texts()
    if kind == "encoder":
        return stack(source)["encoder_out"][0].transpose(0, 1)[source.ne(1)]
    encoder_out = {"encoder_out": [encoder_output], "encoder_padding_mask": [source.eq(1)]}
    features, _ = stack.extract_features(target, None if kind == "language model" else encoder_out)
    return features[target.ne(1)]
