"""Command-line options of our models: their flags, their defaults, and which combinations and tasks are refused."""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.multilingual_language_modeling import MultilingualLanguageModelingTask
from fairseq.tasks.multilingual_masked_lm import MultiLingualMaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.sentence_ranking import SentenceRankingTask
from omegaconf import OmegaConf

from ode_transformer.models.depth_stack import DEPTH_OPTIONS, LSTM_OPTIONS, depth_choice
from ode_transformer.nn import (
    FIRST_CELLS,
    FUNCTIONS,
    HIDDEN,
    HISTORIES,
    LSTM,
    MERGES,
    SCOPES,
    SHARES,
    STACKS,
    STAGE_PARAMETERS,
    VALUE_RESIDUALS,
    DepthChoice,
    LSTMChoice,
    depth_schemes,
    refused_stack,
)
from ode_transformer.numerics import COEFFICIENTS, GATE_STARTS, GATE_SUMS, SPLITTINGS
from ode_transformer.support.arguments import (
    finite_float,
    flag_name,
    non_negative_int,
    positive_float,
    positive_int,
    probability,
)
from ode_transformer.support.errors import OptionError

# Defaults of the flags that all our models have.
DEPTH_DEFAULTS: dict[str, Any] = {
    "post_norm": False,
    "encoder_ode_scheme": DepthChoice().scheme,
    **{option: getattr(DepthChoice(), field) for option, field in DEPTH_OPTIONS.items()},
    **{option: getattr(LSTMChoice(), field) for option, field in LSTM_OPTIONS.items()},
    "relative_values": False,
    "word_dropout_prob": 0.0,
    "compile": False,
    "cpu_bf16": False,
    "log_depth_interval": 0,
    "log_samples": 0,
    "ode_options_saved": False,  # True in a checkpoint, whose model may use another scheme
}

# Options of fairseq's Transformer that our encoders and decoders do not implement, with the value that means "off".
UNSUPPORTED_OPTIONS: dict[str, Any] = {
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
    # Both tie the adaptive softmax to an adaptive input, which is not supported either.
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
}

# Tasks of fairseq by the kind of model that they train; every other has a source and a target, as translation has.
_TASK_CLASSES = {
    "masked_lm": (MaskedLMTask, MultiLingualMaskedLMTask, SentencePredictionTask, SentenceRankingTask),
    "language_modeling": (LanguageModelingTask, MultilingualLanguageModelingTask),
}


def add_depth_arguments(parser: argparse.ArgumentParser, stacks: tuple[str, ...]) -> None:
    """Add the flags of depth schemes, relative positions and word dropout for a model that has these stacks."""
    for stack in stacks:
        parser.add_argument(
            f"--{stack}-ode-scheme",
            choices=depth_schemes(),
            metavar="NAME",
            help=f"scheme that steps the {stack}'s layers: {', '.join(depth_schemes())}. rk2 is Heun's method; the "
            f"architectures called *_rk2 weigh its stages by the papers' learned gate (--ode-coefficients gate)",
        )
        parser.add_argument(
            f"--{stack}-layer-history",
            choices=HISTORIES,
            help=f"how {stack} layers read all earlier layers: none, their mean (dense) or learned weights (dlcl)",
        )
    for name, settings, description in (
        ("--ode-coefficients", {"choices": tuple(COEFFICIENTS)}, "weights of the stages' increments"),
        ("--ode-gate-sum", {"choices": GATE_SUMS}, "sum of a gate's weights; stages: as many as a step has (ours)"),
        (
            "--ode-gate-start",
            {"choices": GATE_STARTS},
            "a gate (or sigmoid, tanh) starts as the scheme, or by chance as released",
        ),
        (
            "--ode-share-coefficients",
            {"action": argparse.BooleanOptionalAction},
            "one set of coefficients for a stack, as released; --no-ode-share-coefficients: one for each layer",
        ),
        ("--ode-function", {"choices": FUNCTIONS}, "F of a step: what a layer adds, or the layer's output (released)"),
        ("--ode-function-scope", {"choices": SCOPES}, "which sub-layers are stepped: merged, each, or one of them"),
        ("--ode-steps", {"type": positive_int, "metavar": "N"}, "steps for each layer, each 1/N as long"),
        (
            "--ode-step-size",
            {"type": positive_float, "metavar": "H"},
            "how far a layer steps: y + H F(y) instead of y + F(y) (ours)",
        ),
        ("--ode-stage-parameters", {"choices": STAGE_PARAMETERS}, "separate: a copy of the layer for each stage"),
        (
            "--ode-middle-layers",
            {"type": positive_int, "metavar": "K"},
            "step only the K layers in the middle of a stack by its scheme of several stages, the others once",
        ),
        ("--ode-normalize-step", {"action": "store_true"}, "normalise what a step adds to y"),
        ("--value-residual", {"choices": VALUE_RESIDUALS}, "add the first layer's values to those of later layers"),
        ("--layer-splitting", {"choices": tuple(SPLITTINGS)}, "lie-trotter: a Transformer layer; strang: Macaron"),
        ("--dlstm-hidden", {"choices": HIDDEN}, "depth-wise LSTM: hidden state by a network of two layers, or of one"),
        ("--dlstm-merge", {"choices": MERGES}, "how the attentions of a layer become the LSTM's input"),
        ("--dlstm-share", {"choices": SHARES}, "what layers share: the gates, gates and hidden state, or nothing"),
        ("--dlstm-first-cell", {"choices": FIRST_CELLS}, "the cell below the first layer"),
        (
            "--dlstm-forget-bias",
            {"type": finite_float, "metavar": "B"},
            "initial bias of the forget gate; above 0 the gate starts open",
        ),
        (
            "--post-norm",
            {"action": "store_true"},
            "normalise after each sub-layer; needs --ode-function layer-output",
        ),
        ("--max-relative-positions", {"type": non_negative_int, "metavar": "K"}, "clip distance on keys; 0 for none"),
        ("--relative-values", {"action": "store_true"}, "relative positions on the values too"),
        ("--word-dropout-prob", {"type": probability, "metavar": "P"}, "fraction of word embeddings that is zeroed"),
        ("--compile", {"action": "store_true"}, "train with sub-layers compiled by torch.compile; needs a compiler"),
        ("--cpu-bf16", {"action": "store_true"}, "train with products of matrices in bfloat16 on a CPU; needs --cpu"),
    ):
        parser.add_argument(name, help=description, **settings)


def add_log_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag of the depth log, for models whose decoder computes the probabilities that the criterion reads."""
    parser.add_argument(
        "--log-depth-interval",
        type=non_negative_int,
        metavar="N",
        help="log gradient norms and learned stage weights by layer at every N updates; 0, the default, for never",
    )


def add_samples_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag of sample translations, for models with an encoder and a decoder."""
    parser.add_argument(
        "--log-samples",
        type=non_negative_int,
        metavar="N",
        help="log the translations of N sentences at every validation; 0, the default, for none",
    )


def set_defaults(args: argparse.Namespace, **values: Any) -> None:
    """Set the options that are still open; fairseq calls architecture functions more than once.

    :raises SystemExit: the options are those of fairseq-hydra-train, which knows none of our flags
    """
    if OmegaConf.is_config(args):
        arch = getattr(args, "_name", None) or "an architecture of ode_transformer"
        # No OptionError: Hydra would print a traceback around any other exception.
        raise SystemExit(
            f"error: fairseq-hydra-train cannot train {arch}, because Hydra knows only fairseq's own options: "
            'use fairseq-train --user-dir "$(ode-transformer user-dir)" --arch NAME'
        )
    for name, value in values.items():
        setattr(args, name, getattr(args, name, value))


def check_model_options(
    args: argparse.Namespace,
    stacks: tuple[str, ...] = STACKS,
    unsupported: Mapping[str, Any] | None = None,
    more: Iterable[tuple[bool, str]] = (),
) -> None:
    """Refuse options that do not go together.

    :param stacks: those that the model has
    :param unsupported: further options that the model does not implement, with the value that means "off"
    :param more: further mistakes: whether there is one, and what it is
    :raises OptionError: names the flag, its value, and what is allowed
    """
    off_values: dict[str, Any] = UNSUPPORTED_OPTIONS | dict(unsupported or {})
    for name, off in off_values.items():
        if getattr(args, name, off) not in (off, None):
            raise OptionError(f"{flag_name(name)} is not supported by --arch {args.arch}")
    for is_refused, message in (*_mistakes(args, stacks), *more):
        if is_refused:
            raise OptionError(message)
    cfg = TransformerConfig.from_namespace(args)
    choices = {stack: depth_choice(cfg, stack) for stack in stacks}
    refused = refused_stack(choices)
    for stack, choice in choices.items() if refused is None else ():
        middle, layers = choice.without_unused_options().middle_layers, getattr(args, f"{stack}_layers")
        if middle > layers:
            refused = stack, f"{middle} middle layers of a stack of {layers}"
    if refused is not None:
        stack, reason = refused
        raise OptionError(f"--{stack}-ode-scheme {getattr(args, f'{stack}_ode_scheme')}: {reason}")


def _mistakes(args: argparse.Namespace, stacks: tuple[str, ...]) -> Iterator[tuple[bool, str]]:
    """Yield mistakes that options can contain: whether these do, and the message."""
    processes = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    yield (
        processes > 1 and not args.ode_options_saved and not torch.distributed.is_initialized(),
        f"torchrun has started {processes} processes, and each would train by itself into one folder: without "
        f"GPUs use `ode-transformer train RECIPE --gpus 0 --processes {processes}`, or the flags of fairseq-train "
        f"that it prints with --dry-run",
    )
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        value = getattr(args, name) or 0
        yield not 0 <= value < 1, f"{flag_name(name)} {value}: a fraction from 0 up to 1, without 1"
    for stack in stacks:
        layers, width, heads, scheme, pre_norm = (
            getattr(args, f"{stack}_{name}")
            for name in ("layers", "embed_dim", "attention_heads", "ode_scheme", "normalize_before")
        )
        if stack == "decoder" and getattr(args, "joint_combination", "add") == "concat":
            width += args.encoder_embed_dim
        yield args.post_norm and pre_norm, f"--post-norm and --{stack}-normalize-before contradict each other"
        yield (
            args.post_norm and scheme == LSTM,
            f"--post-norm: the layers of --{stack}-ode-scheme {LSTM} have no residuals to normalise",
        )
        yield layers < 1, f"--{stack}-layers {layers}: a stack has at least one layer"
        yield (
            heads < 1 or width % heads > 0,
            f"--{stack}-attention-heads {heads}: the heads have to divide the width {width} of the layers",
        )
    yield (
        args.cpu_bf16 and not getattr(args, "cpu", False) and not args.ode_options_saved,
        "--cpu-bf16 needs --cpu; a GPU has --amp, --fp16 and --bf16",
    )
    yield (
        args.dlstm_merge.startswith("concat") and ("decoder" not in stacks or args.decoder_ode_scheme != LSTM),
        f"--dlstm-merge {args.dlstm_merge} joins attentions of decoder layers: it needs --decoder-ode-scheme {LSTM}",
    )
    yield (
        getattr(args, "adaptive_softmax_cutoff", None) is not None and args.log_depth_interval > 0,
        "--log-depth-interval does not go with --adaptive-softmax-cutoff, which gives no probabilities",
    )
    yield (
        args.value_residual != "none" and all(getattr(args, f"{stack}_layers") < 2 for stack in stacks),
        f"--value-residual {args.value_residual}: a stack of one layer has no later layer to add to",
    )


def check_task(args: argparse.Namespace, task: Any, kind: str) -> None:
    """Refuse a task or a precision for which fairseq would build the model and then fail inside it.

    :param task: a task of fairseq; any other object is accepted
    :param kind: translation, masked_lm or language_modeling
    :raises OptionError: names what goes with the architecture, or with a CPU
    """
    if not isinstance(task, FairseqTask):
        return
    task_kind = next((name for name, classes in _TASK_CLASSES.items() if isinstance(task, classes)), "translation")
    if task_kind != kind:
        name = getattr(args, "task", type(task).__name__)
        raise OptionError(f"--task {name} does not go with --arch {args.arch}, which needs --task {kind}")
    on_cpu = getattr(args, "cpu", False) or not torch.cuda.is_available()
    for name in ("fp16", "bf16") if on_cpu and not getattr(args, "ode_options_saved", False) else ():
        if getattr(args, name, False):
            raise OptionError(f"--{name} needs a GPU; on a CPU --cpu --cpu-bf16 multiplies in bfloat16")
