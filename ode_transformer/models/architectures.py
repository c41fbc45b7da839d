"""Sizes and options of the named architectures, and their registration with fairseq."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from fairseq.models import register_model_architecture
from fairseq.models.transformer.transformer_legacy import base_architecture

from ode_transformer.models.depth_options import DEPTH_DEFAULTS, set_defaults

# Options of layers as in the Transformer of 2017.
NO_HISTORY: dict[str, Any] = {"encoder_layer_history": "none", "decoder_layer_history": "none"}
PLAIN_LAYERS = {"max_relative_positions": 0} | NO_HISTORY

# Options by the scheme in an architecture's name (ODE Transformer 2022, section 3). There "rk2" is the RK2-block with
# learnable γ_i, which is the scheme rk2 (Heun's) with the learned gate; RK4 keeps the coefficients of its tableau.
# PCformer and IIET read all earlier layers themselves, so that they have no layer history. For translation PCformer's
# released code predicts with RK4's stages, for language models with RK2's; all its layers share one α. "ones" is ours:
# RK2 with both coefficients 1, each layer applied twice, and no layer history, so that ode-transformer export takes it.
# "normalized" is an Euler step of normalised length (Peri-LN, Kim et al. 2025), which learns fastest in a few minutes.
SCHEME_OPTIONS: dict[str, dict[str, Any]] = {
    "euler": {"encoder_ode_scheme": "euler"},
    "normalized": {"encoder_ode_scheme": "euler", "ode_normalize_step": True},
    "rk2": {"encoder_ode_scheme": "rk2", "ode_coefficients": "gate"},
    "ones": {"encoder_ode_scheme": "rk2", "ode_coefficients": "ones"} | NO_HISTORY,
    "rk4": {"encoder_ode_scheme": "rk4"},
    "pcformer": {
        "encoder_ode_scheme": "pcformer4",
        "ode_coefficients": "ema",
        "ode_share_coefficients": True,
        "encoder_layer_history": "none",
    },
    "iiet": {"encoder_ode_scheme": "iiet", "encoder_layer_history": "none"},
}
LANGUAGE_MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    name: {option.replace("encoder", "decoder"): value for option, value in options.items()}
    for name, options in SCHEME_OPTIONS.items()
}
LANGUAGE_MODEL_OPTIONS["pcformer"]["decoder_ode_scheme"] = "pcformer2"


def stack_sizes(
    dim: int, inner_dim: int, heads: int, *, encoder: int | None = None, decoder: int | None = None, **options: Any
) -> dict[str, Any]:
    """Return the size options of a model whose stacks have equal layers."""
    sizes: dict[str, Any] = {}
    for stack, layers in (("encoder", encoder), ("decoder", decoder)):
        if layers is not None:
            sizes |= {f"{stack}_embed_dim": dim, f"{stack}_ffn_embed_dim": inner_dim}
            sizes |= {f"{stack}_attention_heads": heads, f"{stack}_layers": layers}
    return sizes | options


# Sizes of translation models by the suffix of their architecture's name.
TRANSLATION_SIZES: dict[str, dict[str, Any]] = {
    "": stack_sizes(512, 2048, 8, encoder=6, decoder=6),
    "_tiny": stack_sizes(128, 256, 4, encoder=4, decoder=4),
    "_iwslt_de_en": stack_sizes(512, 1024, 4, encoder=6, decoder=6),
    "_wmt_en_de": stack_sizes(512, 2048, 8, encoder=6, decoder=6),
    "_wmt_en_de_deep": stack_sizes(512, 2048, 8, encoder=24, decoder=6),
    "_wmt_en_de_big": stack_sizes(1024, 4096, 16, encoder=6, decoder=6, dropout=0.3),
    "_wmt_en_de_big_deep": stack_sizes(1024, 4096, 16, encoder=12, decoder=6, dropout=0.3),
    "_small_18": stack_sizes(256, 1024, 4, encoder=18, decoder=6),  # 2022, Table 3, which does not state the heads
    "_small_28": stack_sizes(256, 1024, 4, encoder=28, decoder=6),
}


def complete_transformer_options(args: argparse.Namespace) -> None:
    """Set what is still open to the defaults of our Transformers, in the size of WMT's base model."""
    set_defaults(args, decoder_ode_scheme="euler", max_relative_positions=8)
    set_defaults(args, encoder_layer_history="dlcl", decoder_layer_history="dlcl")
    set_defaults(args, **DEPTH_DEFAULTS)
    set_defaults(args, encoder_normalize_before=not args.post_norm, decoder_normalize_before=not args.post_norm)
    set_defaults(args, attention_dropout=0.1, activation_dropout=0.1)
    base_architecture(args)


def register_architecture(
    name: str,
    *options: Mapping[str, Any],
    model: str = "ode_transformer",
    complete: Callable[[argparse.Namespace], None] = complete_transformer_options,
) -> None:
    """Register an architecture with fairseq.

    :param options: values for what the command line leaves open, the first mapping first
    :param complete: sets what ``options`` leave open
    """

    def set_options(args: argparse.Namespace) -> None:
        if getattr(args, "relu_dropout", None) is not None:  # the old name of activation_dropout
            set_defaults(args, activation_dropout=args.relu_dropout)
        for values in options:
            set_defaults(args, **values)
        complete(args)

    register_model_architecture(model, name)(set_options)
