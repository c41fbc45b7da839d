"""Reformer (Li et al. 2020): translation over a joint representation; options, architectures, registration.

The encoder's options are those of the PreNet (no layers: Reformer-base), the decoder's those of the joint layers.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from ode_transformer.models.joint_layers import JOINT_DROPOUTS
from ode_transformer.models.ode_transformer import ODETransformerModel, check, defaults, register, size_of
from ode_transformer.models.reformer_stacks import JOINT_INPUTS, ReformerDecoder, ReformerEncoder
from ode_transformer.nn import COMBINATIONS, REDUCTIONS, joint_width
from ode_transformer.support.arguments import cell_count

# What every architecture of this model starts from. The input is the released code's, because the printed Eq. 4 learns
# slower (docs/reformer.md); fairseq's dropout of 0.1 is the paper's, the other rates are those released for IWSLT.
JOINT: dict[str, Any] = {
    "joint_input": "released",
    "joint_combination": "add",
    "joint_reduction": "softmax",
    "joint_dropout": "shared",
    "max_joint_cells": 131_072,
    "max_relative_positions": 0,
    "encoder_layer_history": "none",
    "decoder_layer_history": "none",
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}


@register_model("reformer")
class ReformerModel(ODETransformerModel):
    """A PreNet over the source, and joint layers over a source × target grid; no encoder–decoder attention."""

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        cells = {"type": cell_count, "metavar": "N"}
        for name, kind, extra in (
            (
                "--joint-input",
                {"choices": JOINT_INPUTS},
                "paper: (embedding + position)·√E; released: √E·embedding + position",
            ),
            ("--joint-combination", {"choices": COMBINATIONS}, "what makes a cell of a source and a target position"),
            ("--joint-reduction", {"choices": REDUCTIONS}, "what takes the source axis out again"),
            (
                "--joint-dropout",
                {"choices": JOINT_DROPOUTS},
                "noise: shared along axes (Dropout1d, 2d) or for each element",
            ),
            ("--max-joint-cells", cells, "cells, source × target, that a pass spans at one time; 0 for no limit"),
        ):
            parser.add_argument(name, help=extra, **kind)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ReformerModel:
        defaults(args, **JOINT)
        return super().build_model(args, task)

    @classmethod
    def check(cls, args: argparse.Namespace) -> None:
        for name, known in (
            ("joint_input", JOINT_INPUTS),
            ("joint_combination", COMBINATIONS),
            ("joint_reduction", REDUCTIONS),
            ("joint_dropout", JOINT_DROPOUTS),
        ):
            if getattr(args, name) not in known:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(args, name)}: known are {', '.join(known)}")
        if args.layer_splitting != "lie-trotter":
            raise ValueError(f"--layer-splitting {args.layer_splitting} is not defined for joint layers: lie-trotter")
        if args.encoder_layers < 0:
            raise ValueError(f"--encoder-layers {args.encoder_layers}: 0 for no PreNet, or a number of layers")
        if not args.encoder_layers and (args.encoder_ode_scheme, args.encoder_layer_history) != ("euler", "none"):
            raise ValueError(
                "--encoder-ode-scheme, --encoder-layer-history: without a PreNet (--encoder-layers 0) there are no "
                "layers to step; --decoder-ode-scheme steps the joint layers"
            )
        check(args, ("encoder", "decoder") if args.encoder_layers else ("decoder",))
        try:
            width = joint_width(args.encoder_embed_dim, args.decoder_embed_dim, args.joint_combination)
        except ValueError as error:
            raise ValueError(f"--joint-combination {args.joint_combination}: {error}") from error
        if width % args.decoder_attention_heads:
            raise ValueError(
                f"--decoder-attention-heads: {args.decoder_attention_heads} do not divide the grid's width {width}"
            )

    @torch.no_grad()
    def attention_maps(
        self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor
    ) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """Where the last layer looks along each axis (Figure 5), mean over the heads, and what the reduction takes.

        :param src_tokens: [B, S]
        :param prev_output_tokens: [B, T]
        :returns: for each map the names of its axes, the last one attended over, and weights [B, *axes]
        """
        shown: dict[str, list[Tensor]] = {"self_attn_target": [], "self_attn_source": []}
        self.decoder.shown = shown
        try:
            _, extra = self(src_tokens, src_lengths, prev_output_tokens)
        finally:
            self.decoder.shown = None
        target, source = (shown[name][-1].mean(dim=2) for name in shown)  # of a step's last stage
        return {
            "attention over the source": (("target", "source", "source"), source),
            "attention over the target": (("source", "target", "prefix"), target),
            "reduction": (("target", "source"), extra["attn"][0]),
        }

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Embedding) -> ReformerEncoder:
        return ReformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ReformerDecoder:
        return ReformerDecoder(TransformerConfig.from_namespace(args), tgt_dict, embed_tokens)


def sizes(dim: int, inner: int, heads: int, base: int, fast: int, **more: Any) -> dict[str, dict[str, Any]]:
    """Reformer-base with ``base`` joint layers, Reformer-fast with ``fast`` of them and a PreNet of the same height."""
    return {"base": size_of(dim, inner, heads, 0, base, **more), "fast": size_of(dim, inner, heads, fast, fast, **more)}


_NIST = {"attention_dropout": 0.1, "activation_dropout": 0.1}  # as released
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "_tiny": sizes(128, 256, 4, 4, 3),
    "_iwslt_de_en": sizes(256, 1024, 4, 7, 5),
    "_nist_zh_en": sizes(512, 2048, 8, 7, 5, **_NIST),
    # Scaled by single-shot gradients with β = 2: two layers more, and the inner size times 1.5 (5.3).
    "_iwslt_de_en_scaled": {"fast": size_of(256, 1536, 4, 7, 7)},
    "_nist_zh_en_scaled": {"fast": size_of(512, 3072, 8, 7, 7, dropout=0.2, **_NIST)},
}

for _suffix, _kinds in SIZES.items():
    for _kind, _size in _kinds.items():
        register(f"reformer_{_kind}{_suffix}", _size, JOINT, model="reformer")
for _kind, _size in SIZES["_nist_zh_en"].items():
    register(f"reformer_{_kind}", _size, JOINT, model="reformer")
register("reformer", SIZES["_nist_zh_en"]["fast"], JOINT, model="reformer")
