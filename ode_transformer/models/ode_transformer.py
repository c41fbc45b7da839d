"""ODE Transformer (Li et al. 2021, 2022): options, architectures, registration with fairseq."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from torch import nn

from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.depth_stack import depth_choice
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.saved_model import SafeFromPretrained
from ode_transformer.models.saved_options import check_build_options
from ode_transformer.models.tasks import refuse_task
from ode_transformer.nn import (
    FIRST_CELLS,
    FUNCTIONS,
    HIDDEN,
    HISTORIES,
    LSTM,
    MERGES,
    SCHEMES,
    SCOPES,
    SHARES,
    STAGE_PARAMETERS,
    refused_stack,
)
from ode_transformer.numerics import COEFFICIENTS, SPLITTINGS
from ode_transformer.support.arguments import clip_distance, finite_float, log_interval, positive_int, probability

STACKS = ("encoder", "decoder")

# Options of fairseq's Transformer that these encoders and decoders do not carry out, with the value that means "off".
_NOT_SUPPORTED = {
    "adaptive_input": False,
    "base_layers": 0,
    "char_inputs": False,
    "cross_self_attention": False,
    "encoder_layers_to_keep": None,
    "encoder_xformers_att_config": None,
    "decoder_layers_to_keep": None,
    "decoder_xformers_att_config": None,
    "export": False,
    "no_cross_attention": False,
    "offload_activations": False,
    "quant_noise_pq": 0,
    "quant_noise_scalar": 0,
}

_PROBABILITIES = (
    *("dropout", "attention_dropout", "activation_dropout", "relu_dropout", "word_dropout_prob"),
    *("encoder_layerdrop", "decoder_layerdrop"),
)


@register_model("ode_transformer")
class ODETransformerModel(SafeFromPretrained, TransformerModel):
    """Encoder and decoder whose layers are vector fields, stepped by a numerical scheme."""

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        add_depth_arguments(parser, STACKS)
        add_log_argument(parser)

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> ODETransformerModel:
        """Builds the model from fairseq's options.

        :raises ValueError: in one line, if options do not go together, or the task has no source and target
        """
        args.ode_trained = getattr(args, "ode_options_saved", False)
        complete(args)
        refuse_task(args, task, "translation")
        cls.check(args)
        args.ode_options_saved = True  # a checkpoint keeps the options: here it says that they come from one
        model: ODETransformerModel = super().build_model(args, task)
        log_depth(model, args.log_depth_interval)
        return model

    @classmethod
    def check(cls, args: argparse.Namespace) -> None:
        """Refuses, in one line, options that do not go together."""
        check(args)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerEncoder:
        return ODETransformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ODETransformerDecoder:
        return ODETransformerDecoder(TransformerConfig.from_namespace(args), tgt_dict, embed_tokens)


def add_depth_arguments(parser: argparse.ArgumentParser, stacks: tuple[str, ...]) -> None:
    """The flags that choose how the stacks 'encoder', 'decoder' are moved through."""
    scheme = {"choices": SCHEMES, "metavar": "NAME"}
    for stack in stacks:
        parser.add_argument(f"--{stack}-ode-scheme", help=f"scheme of the {stack}: {', '.join(SCHEMES)}", **scheme)
        parser.add_argument(
            f"--{stack}-layer-history", choices=HISTORIES, help=f"what {stack} layers read of earlier layers"
        )
    for name, kind, extra in (
        ("--ode-coefficients", {"choices": tuple(COEFFICIENTS)}, "weights of the stages' increments"),
        ("--ode-share-coefficients", {"action": "store_true"}, "one set of coefficients for a stack, as released"),
        ("--ode-function", {"choices": FUNCTIONS}, "what is stepped: what a layer adds, or the layer (released)"),
        ("--ode-function-scope", {"choices": SCOPES}, "which sub-layers are stepped: merged, each, or one of them"),
        ("--ode-steps", {"type": positive_int, "metavar": "N"}, "steps of size 1/N for each layer"),
        ("--ode-stage-parameters", {"choices": STAGE_PARAMETERS}, "separate: a copy of the layer for each stage"),
        ("--layer-splitting", {"choices": tuple(SPLITTINGS)}, "lie-trotter: a Transformer layer; strang: Macaron"),
        ("--dlstm-hidden", {"choices": HIDDEN}, "depth-wise LSTM: hidden state by a network of two layers, or of one"),
        ("--dlstm-merge", {"choices": MERGES}, "how the attentions of a decoder layer become the LSTM's input"),
        ("--dlstm-share", {"choices": SHARES}, "what layers share: the gates, gates and hidden state, or nothing"),
        ("--dlstm-first-cell", {"choices": FIRST_CELLS}, "the cell below the first layer"),
        (
            "--dlstm-forget-bias",
            {"type": finite_float, "metavar": "B"},
            "start of the forget gate's bias, above 0: open",
        ),
        (
            "--post-norm",
            {"action": "store_true"},
            "normalise after each sub-layer; goes with --ode-function layer-output",
        ),
        ("--max-relative-positions", {"type": clip_distance, "metavar": "K"}, "clip distance on keys; 0 for none"),
        ("--relative-values", {"action": "store_true"}, "relative positions on the values too"),
        ("--word-dropout-prob", {"type": probability, "metavar": "P"}, "share of word embeddings that is zeroed"),
    ):
        parser.add_argument(name, help=extra, **kind)


def add_log_argument(parser: argparse.ArgumentParser) -> None:
    """Of the models whose decoder gives the criterion its probabilities."""
    parser.add_argument(
        "--log-depth-interval",
        type=log_interval,
        metavar="N",
        help="log gradient norms and learned stage weights by layer at every N updates; 0, the default, for never",
    )


def check(
    args: argparse.Namespace, stacks: tuple[str, ...] = STACKS, not_supported: Mapping[str, Any] | None = None
) -> None:
    """Whether the options go together in the stacks that a model has.

    :param not_supported: further options that the model does not carry out, with the value that means "off"
    :raises ValueError: in one line, if they do not
    """
    for name, off in (_NOT_SUPPORTED | dict(not_supported or {})).items():
        if getattr(args, name, off) not in (off, None):
            raise ValueError(f"--{name.replace('_', '-')} is not supported by --arch {args.arch}")
    for stack in stacks:
        if args.post_norm and getattr(args, f"{stack}_normalize_before"):
            raise ValueError(f"--post-norm and --{stack}-normalize-before contradict each other")
        if args.post_norm and getattr(args, f"{stack}_ode_scheme") == LSTM:
            raise ValueError(f"--post-norm: the layers of --{stack}-ode-scheme {LSTM} have no residuals to normalise")
        layers, dim, heads = (getattr(args, f"{stack}_{name}") for name in ("layers", "embed_dim", "attention_heads"))
        if layers < 1:
            raise ValueError(f"--{stack}-layers {layers}: a stack has at least one layer")
        if heads < 1 or dim % heads:
            raise ValueError(f"--{stack}-attention-heads: {heads} attention heads do not divide the width {dim}")
    if args.dlstm_merge == "concat" and not ("decoder" in stacks and args.decoder_ode_scheme == LSTM):
        raise ValueError(
            f"--dlstm-merge concat joins attentions of decoder layers: it needs --decoder-ode-scheme {LSTM}"
        )
    if args.log_depth_interval and getattr(args, "adaptive_softmax_cutoff", None):
        raise ValueError(
            "--log-depth-interval does not go with --adaptive-softmax-cutoff, which gives no probabilities"
        )
    for name in _PROBABILITIES:
        if not 0.0 <= float(getattr(args, name, None) or 0.0) < 1.0:
            raise ValueError(f"--{name.replace('_', '-')} {getattr(args, name)}: a probability lies in [0, 1)")
    cfg = TransformerConfig.from_namespace(args)
    refused = refused_stack({stack: depth_choice(cfg, stack) for stack in stacks})
    if refused is not None:
        stack, reason = refused
        raise ValueError(f"--{stack}-ode-scheme {getattr(args, f'{stack}_ode_scheme')}: {reason}")


def defaults(args: argparse.Namespace, **values: Any) -> None:
    """Sets what the command line left open; architecture functions run more than once."""
    for name, value in values.items():
        setattr(args, name, getattr(args, name, value))


# What every architecture of ours starts from.
PLAIN: dict[str, Any] = {
    "post_norm": False,
    "encoder_ode_scheme": "euler",
    "ode_coefficients": "tableau",
    "ode_share_coefficients": False,
    "ode_function": "increment",
    "ode_function_scope": "san+ffn",
    "ode_steps": 1,
    "ode_stage_parameters": "shared",
    "layer_splitting": "lie-trotter",
    "dlstm_hidden": "ffn",
    "dlstm_merge": "add",
    "dlstm_share": "gates",
    "dlstm_first_cell": "zero",
    "dlstm_forget_bias": 0.0,
    "relative_values": False,
    "word_dropout_prob": 0.0,
    "log_depth_interval": 0,
}


def complete(args: argparse.Namespace) -> None:
    """What all architectures share, and the WMT base size for what is still open."""
    defaults(args, **PLAIN)
    defaults(
        args,
        decoder_ode_scheme="euler",
        encoder_layer_history="dlcl",
        decoder_layer_history="dlcl",
        max_relative_positions=8,
        encoder_normalize_before=not args.post_norm,
        decoder_normalize_before=not args.post_norm,
        attention_dropout=0.1,
        activation_dropout=0.1,
    )
    base_architecture(args)


# ODE Transformer (2022) 3: "rk2" is RK2-block (learnable γ_i), the gate; RK4 keeps its tableau's coefficients.
METHODS: dict[str, dict[str, Any]] = {
    "euler": {"encoder_ode_scheme": "euler"},
    "rk2": {"encoder_ode_scheme": "rk2", "ode_coefficients": "gate"},
    "rk4": {"encoder_ode_scheme": "rk4"},
}


def size_of(dim: int, inner: int, heads: int, encoder_layers: int, decoder_layers: int, **more: Any) -> dict[str, Any]:
    stacks = {"encoder": encoder_layers, "decoder": decoder_layers}
    size: dict[str, Any] = {}
    for stack, layers in stacks.items():
        size |= {
            f"{stack}_embed_dim": dim,
            f"{stack}_ffn_embed_dim": inner,
            f"{stack}_attention_heads": heads,
            f"{stack}_layers": layers,
        }
    return size | more


SIZES: dict[str, dict[str, Any]] = {
    "": size_of(512, 2048, 8, 6, 6),
    "_tiny": size_of(128, 256, 4, 4, 4),
    "_iwslt_de_en": size_of(512, 1024, 4, 6, 6),
    "_wmt_en_de": size_of(512, 2048, 8, 6, 6),
    "_wmt_en_de_deep": size_of(512, 2048, 8, 24, 6),
    "_wmt_en_de_big": size_of(1024, 4096, 16, 6, 6, dropout=0.3),
    "_wmt_en_de_big_deep": size_of(1024, 4096, 16, 12, 6, dropout=0.3),
    "_small_18": size_of(256, 1024, 4, 18, 6),  # 2022, Table 3: H = 256, L = 18; the heads are not stated
    "_small_28": size_of(256, 1024, 4, 28, 6),
}


def register(name: str, *options: dict[str, Any], model: str = "ode_transformer") -> None:
    """Registers an architecture of a model that has ``options``; what they leave open is the WMT base size's."""

    def architecture(args: argparse.Namespace) -> None:
        check_build_options(args)  # here fairseq's loading reaches our code for the first time
        for some in options:
            defaults(args, **some)
        complete(args)

    register_model_architecture(model, name)(architecture)


for _method, _options in METHODS.items():
    for _suffix, _size in SIZES.items():
        register(f"ode_transformer_{_method}{_suffix}", _options, _size)
