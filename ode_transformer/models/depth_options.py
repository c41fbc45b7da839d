"""Command-line options of our models: their flags, their defaults, and which combinations and tasks are refused."""

import argparse
import os
from collections.abc import Iterator, Mapping
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

from ode_transformer.models.flags import add_depth_flags, read_choices
from ode_transformer.nn import LSTM, DepthChoice
from ode_transformer.support.arguments import flag_name, non_negative_int, probability
from ode_transformer.support.errors import OptionError

# Defaults of the flags that all our models have.
DEPTH_DEFAULTS: dict[str, Any] = {
    "post_norm": False,
    "encoder_ode_scheme": DepthChoice().scheme,
    "word_dropout_prob": 0.0,
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
    """Add the flags that all our models have, for a model that has these stacks."""
    add_depth_flags(parser, stacks)
    for name, settings, description in (
        (
            "--post-norm",
            {"action": "store_true"},
            "normalise after each sub-layer; needs --ode-function layer-output",
        ),
        ("--word-dropout-prob", {"type": probability, "metavar": "P"}, "fraction of word embeddings that is zeroed"),
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


def read_model_options(
    args: argparse.Namespace,
    stacks: tuple[str, ...],
    unsupported: Mapping[str, Any] | None = None,
    without_layers: str = "",
) -> TransformerConfig:
    """Return fairseq's configuration of a model, with the choice of each stack as ``cfg.encoder.depth``.

    :param stacks: those that the model has
    :param unsupported: further options that the model does not implement, with the value that means "off"
    :param without_layers: the stack that may have no layers
    :raises OptionError: options do not go together; names the flag, its value, and what is allowed
    """
    off_values: dict[str, Any] = UNSUPPORTED_OPTIONS | dict(unsupported or {})
    for name, off in off_values.items():
        if getattr(args, name, off) not in (off, None):
            raise OptionError(f"{flag_name(name)} is not supported by --arch {args.arch}")
    for stack in stacks:
        layers = getattr(args, f"{stack}_layers")
        refuse(
            (layers < (stack != without_layers), f"--{stack}-layers {layers}: a stack has at least one layer"),
            (
                args.post_norm and getattr(args, f"{stack}_normalize_before"),
                f"--post-norm and --{stack}-normalize-before contradict each other",
            ),
        )
    cfg = TransformerConfig.from_namespace(args)
    choices = read_choices(args, stacks)
    for stack, choice in choices.items():
        getattr(cfg, stack).depth = choice
    refuse(*_mistakes(args, choices))
    return cfg


def refuse(*mistakes: tuple[bool, str]) -> None:
    """Refuse options if they contain one of some mistakes.

    :param mistakes: whether the options contain it, and the message
    :raises OptionError: the first one that they contain
    """
    for is_refused, message in mistakes:
        if is_refused:
            raise OptionError(message)


def _mistakes(args: argparse.Namespace, choices: Mapping[str, DepthChoice]) -> Iterator[tuple[bool, str]]:
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
    for stack, choice in choices.items():
        layers, width, heads = (getattr(args, f"{stack}_{name}") for name in ("layers", "embed_dim", "attention_heads"))
        if stack == "decoder" and getattr(args, "joint_combination", "add") == "concat":
            width += args.encoder_embed_dim
        yield (
            args.post_norm and choice.is_lstm,
            f"--post-norm: the layers of --{stack}-ode-scheme {LSTM} have no residuals to normalise",
        )
        yield (
            heads < 1 or width % heads > 0,
            f"--{stack}-attention-heads {heads}: the heads have to divide the width {width} of the layers",
        )
        yield (
            choice.middle_layers > layers,
            f"--ode-middle-layers {choice.middle_layers}: the {stack} has {layers} layers",
        )
    yield (
        args.cpu_bf16 and not getattr(args, "cpu", False) and not args.ode_options_saved,
        "--cpu-bf16 needs --cpu; a GPU has --amp, --fp16 and --bf16",
    )
    merges = {stack: choice.lstm.merge for stack, choice in choices.items()}
    two_attentions = "encoder" in merges and merges.get("decoder", "").startswith("concat")
    yield (
        any(merge.startswith("concat") for merge in merges.values()) and not two_attentions,
        f"--dlstm-merge concat joins the two attentions of a translation model's decoder layers: it needs "
        f"--decoder-ode-scheme {LSTM}",
    )
    yield (
        getattr(args, "adaptive_softmax_cutoff", None) is not None and args.log_depth_interval > 0,
        "--log-depth-interval does not go with --adaptive-softmax-cutoff, which gives no probabilities",
    )
    residual = any(choice.value_residual != "none" for choice in choices.values())
    yield (
        residual and all(getattr(args, f"{stack}_layers") < 2 for stack in choices),
        "--value-residual: a stack of one layer has no later layer to add to",
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
