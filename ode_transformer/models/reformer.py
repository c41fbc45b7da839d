"""Reformer (Li et al. 2020): translation over a joint representation; options, architectures, registration.

The encoder's options are those of the PreNet (no layers: Reformer-base), the decoder's those of the joint layers.
"""

import argparse
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from ode_transformer.models.architectures import PLAIN_LAYERS, register_architecture, stack_sizes
from ode_transformer.models.depth_options import read_model_options, set_defaults
from ode_transformer.models.layers import JOINT_DROPOUTS
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.reformer_stacks import JOINT_INPUTS, ReformerDecoder, ReformerEncoder
from ode_transformer.nn import COMBINATIONS, REDUCTIONS, DepthChoice
from ode_transformer.support.arguments import non_negative_int
from ode_transformer.support.errors import OptionError

# Options of every architecture of this model. The input is the released code's, because Eq. 4 as printed learns slower
# (docs/reformer.md); fairseq's default dropout of 0.1 is the paper's, the other rates are those released for IWSLT.
REFORMER_OPTIONS: dict[str, Any] = {
    "joint_input": "released",
    "joint_combination": "add",
    "joint_reduction": "softmax",
    "joint_dropout": "shared",
    "max_joint_cells": 131_072,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    **PLAIN_LAYERS,
}


@register_model("reformer")
class ReformerModel(ODETransformerModel):
    """A PreNet over the source, and joint layers over a source × target grid; no encoder–decoder attention."""

    encoder_class = ReformerEncoder
    decoder_class = ReformerDecoder

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        for flag, choices, description in (
            ("--joint-input", JOINT_INPUTS, "paper: (embedding + position)·√E; released: √E·embedding + position"),
            ("--joint-combination", COMBINATIONS, "how a source and a target position make a position of the grid"),
            ("--joint-reduction", REDUCTIONS, "how the source axis is reduced after the last layer"),
            ("--joint-dropout", JOINT_DROPOUTS, "noise: shared along axes (Dropout1d, 2d) or for each element"),
        ):
            parser.add_argument(flag, choices=choices, help=description)
        cells = "positions of the grid in memory at one time; a larger batch is divided; 0 for no limit"
        parser.add_argument("--max-joint-cells", type=non_negative_int, metavar="N", help=cells)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> "ReformerModel":
        set_defaults(args, **REFORMER_OPTIONS)
        return super().build_model(args, task)

    @classmethod
    def read_options(cls, args: argparse.Namespace) -> TransformerConfig:
        """Return fairseq's configuration; see :meth:`ODETransformerModel.read_options`."""
        source, target = args.encoder_embed_dim, args.decoder_embed_dim
        if getattr(args, "joint_combination", "add") == "add" and source != target:
            raise OptionError(
                f"--joint-combination add: source and target have widths {source} and {target}; use concat"
            )
        cfg = read_model_options(args, cls.stacks, without_layers="encoder")
        joint: DepthChoice = cfg.decoder.depth
        if joint.splitting != "lie-trotter":
            raise OptionError(f"--layer-splitting {joint.splitting} is not defined for joint layers: lie-trotter")
        if joint.value_residual != "none":
            raise OptionError("--value-residual adds values along one text, and a Reformer's layers attend in a grid")
        return cfg

    @torch.no_grad()
    def attention_maps(
        self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor
    ) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """Return the maps of :meth:`ReformerDecoder.attention_maps`."""
        return self.decoder.attention_maps(prev_output_tokens, self.encoder(src_tokens, src_lengths))


def reformer_sizes(
    dim: int, inner_dim: int, heads: int, base: int, fast: int, **options: Any
) -> dict[str, dict[str, Any]]:
    """Return the sizes of a Reformer-base and a Reformer-fast.

    :param base: joint layers of Reformer-base, which has no PreNet
    :param fast: joint layers of Reformer-fast, and layers of its PreNet
    """
    return {
        "base": stack_sizes(dim, inner_dim, heads, encoder=0, decoder=base, **options),
        "fast": stack_sizes(dim, inner_dim, heads, encoder=fast, decoder=fast, **options),
    }


_NIST_DROPOUTS = {"attention_dropout": 0.1, "activation_dropout": 0.1}  # as released
REFORMER_SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "_tiny": reformer_sizes(128, 256, 4, 4, 3),
    "_iwslt_de_en": reformer_sizes(256, 1024, 4, 7, 5),
    "_nist_zh_en": reformer_sizes(512, 2048, 8, 7, 5, **_NIST_DROPOUTS),
    # Scaled by single-shot gradients with β = 2: two layers more, and the inner size times 1.5 (5.3).
    "_iwslt_de_en_scaled": {"fast": stack_sizes(256, 1536, 4, encoder=7, decoder=7)},
    "_nist_zh_en_scaled": {"fast": stack_sizes(512, 3072, 8, encoder=7, decoder=7, dropout=0.2, **_NIST_DROPOUTS)},
}

for _suffix, _kinds in (REFORMER_SIZES | {"": REFORMER_SIZES["_nist_zh_en"]}).items():
    for _kind, _size in _kinds.items():
        register_architecture(f"reformer_{_kind}{_suffix}", _size, REFORMER_OPTIONS, model="reformer")
register_architecture("reformer", REFORMER_SIZES["_nist_zh_en"]["fast"], REFORMER_OPTIONS, model="reformer")
