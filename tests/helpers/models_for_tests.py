"""Builds registered architectures without a data set."""

from argparse import Namespace
from typing import Any

import torch
from fairseq.models import FairseqEncoderDecoderModel

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.models.model_from_options import build_from_options

PAD, EOS = 1, 2


def build_model(arch: str, source: int = 30, target: int | None = None, **options: Any) -> FairseqEncoderDecoderModel:
    """The architecture with dictionaries of the given sizes, evaluation mode; embeddings are shared if they are one."""
    args = Namespace(arch=arch, share_all_embeddings=target is None, **options)
    return build_from_options(args, source, target).eval()


SMALL = {
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_embed_dim": 16,
    "decoder_ffn_embed_dim": 24,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "max_relative_positions": 3,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}


def small_model(seed: int = 0, arch: str = "ode_transformer_euler", **options: Any) -> FairseqEncoderDecoderModel:
    """A model of 2-2 layers in float64 whose every parameter has been moved away from its start."""
    torch.manual_seed(seed)
    model = build_model(arch, **(SMALL | options)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(lengths: list[int], seed: int = 0, vocabulary: int = 30) -> torch.Tensor:
    """Random sentences, right-padded, each closed by EOS; [B, longest]."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        row[: length - 1] = torch.randint(4, vocabulary, (length - 1,), generator=generator)
        row[length - 1] = EOS
    return tokens


def teacher_forced(target: torch.Tensor) -> torch.Tensor:
    """The decoder's input for a target: shifted right, EOS first."""
    shifted = target.roll(1, dims=1)
    shifted[:, 0] = EOS
    shifted[shifted.eq(EOS) & (torch.arange(target.size(1)) > 0)] = PAD
    return shifted


RENAMED = {
    "self_attn.layer_norm": "self_attn_layer_norm",
    "self_attn.function": "self_attn",
    "encoder_attn.layer_norm": "encoder_attn_layer_norm",
    "encoder_attn.function": "encoder_attn",
    "ffn.layer_norm": "final_layer_norm",
    "ffn.function.": "",
}


def fairseqs_names(model) -> dict[str, torch.Tensor]:
    """The state of a model of ours as fairseq's own transformer names it."""
    weights = {}
    for name, tensor in model.state_dict().items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if not name.endswith("_extra_state"):  # what the parameters are for, which fairseq does not keep
            weights[name] = tensor
    return weights
