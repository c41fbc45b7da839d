"""Command-line options of our models: their flags, their defaults, and which combinations and tasks are refused.

The flags of depth are made from the fields of ``DepthChoice``.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from omegaconf import OmegaConf

from ode_transformer.nn import LSTM, STACKS, DepthChoice, Option
from ode_transformer.support.arguments import (
    finite_float,
    flag_name,
    non_negative_int,
    positive_float,
    positive_int,
    probability,
)
from ode_transformer.support.errors import OptionError

RULE = (
    "A flag of depth, such as --ode-function, sets both stacks; a stack that has no use for it ignores it. With the "
    "name of a stack in front, such as --decoder-ode-function, it sets that stack alone."
)
_NUMBERS: dict[tuple[type, str], Callable[[str], float]] = {
    (int, "positive"): positive_int,
    (int, "non-negative"): non_negative_int,
    (float, "positive"): positive_float,
    (float, "any"): finite_float,
}
_LISTED = 10  # values that a usage line shows

# Defaults of the flags that all our models have: those of a short flag of depth, and the others.
DEPTH_DEFAULTS: dict[str, Any] = {
    **{option.dest(): option.default for option in DepthChoice.options().values() if not option.own_flag_only},
    "post_norm": False,
    "encoder_ode_scheme": DepthChoice().scheme,
    "word_dropout_prob": 0.0,
    "cpu_bf16": False,
    "log_depth_interval": 0,
    "log_samples": 0,
    "ode_options_saved": False,  # True in a checkpoint, whose model may use another scheme
}

# Options of fairseq's Transformer that our encoders and decoders do not implement
UNSUPPORTED_OPTIONS = (
    *("adaptive_input", "base_layers", "char_inputs", "cross_self_attention", "export", "no_cross_attention"),
    *("encoder_layers_to_keep", "decoder_layers_to_keep", "encoder_xformers_att_config", "decoder_xformers_att_config"),
    *("offload_activations", "quant_noise_pq", "quant_noise_scalar"),
    # Both tie the adaptive softmax to an adaptive input, which is not supported either.
    *("tie_adaptive_weights", "tie_adaptive_proj"),
)
_OFF = (None, False, 0, -1)  # values of fairseq's options that mean "off"

# Tasks of fairseq by the kind of model that they train; every other has a source and a target, as translation has.
_TASKS = {
    "masked_lm": ("masked_lm", "multilingual_masked_lm", "sentence_prediction", "sentence_ranking"),
    "language_modeling": ("language_modeling", "multilingual_language_modeling"),
}


def add_depth_arguments(parser: argparse.ArgumentParser, stacks: tuple[str, ...]) -> None:
    """Add the flags of a model that has these stacks: for each option of depth a short one, and one for each stack."""
    parser.description = RULE
    for option in DepthChoice.options().values():
        prefixes = [f"{stack}-" for stack in stacks] if option.own_flag_only else ["", *(f"{s}-" for s in stacks)]
        for prefix in () if option.fairseqs else prefixes:
            settings = _settings(option)
            if prefix and not option.own_flag_only:
                settings["help"] = argparse.SUPPRESS
            parser.add_argument(f"--{prefix}{option.flag}", **settings)
    add = parser.add_argument
    add("--post-norm", action="store_true", help="normalise after each sub-layer; needs --ode-function layer-output")
    add("--word-dropout-prob", type=probability, metavar="P", help="fraction of word embeddings that is zeroed")
    add("--cpu-bf16", action="store_true", help="train with products of matrices in bfloat16 on a CPU; needs --cpu")
    if "decoder" in stacks:  # which computes the probabilities that the criterion reads
        depth = "log gradient norms and learned stage weights by layer at every N updates; 0, the default, for never"
        add("--log-depth-interval", type=non_negative_int, metavar="N", help=depth)
    if stacks == STACKS:
        samples = "log the translations of N sentences at every validation; 0, the default, for none"
        add("--log-samples", type=non_negative_int, metavar="N", help=samples)


def _settings(option: Option) -> dict[str, Any]:
    """Return what argparse has to know of a flag."""
    if isinstance(option.default, bool):
        return {"help": option.help, "action": argparse.BooleanOptionalAction}
    if option.values is None:
        number = type(option.default)
        metavar = "N" if number is int else "X"
        return {"help": option.help, "type": _NUMBERS[number, option.interval], "metavar": metavar}
    values = tuple(option.values())
    if len(values) <= _LISTED:
        return {"help": option.help, "choices": values}
    return {"help": f"{option.help}: {', '.join(values)}", "choices": values, "metavar": "NAME"}


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
    args: argparse.Namespace, stacks: tuple[str, ...], unsupported: Sequence[str] = (), without_layers: str = ""
) -> TransformerConfig:
    """Return fairseq's configuration of a model, with the choice of each stack as ``cfg.encoder.depth``.

    :param stacks: those that the model has
    :param unsupported: further options that the model does not implement
    :param without_layers: the stack that may have no layers
    :raises OptionError: options do not go together; names the flag, its value, and what is allowed
    """
    for name in (*UNSUPPORTED_OPTIONS, *unsupported):
        if getattr(args, name, None) not in _OFF:
            raise OptionError(f"{flag_name(name)} is not supported by --arch {args.arch}")
    for stack in stacks:
        layers = getattr(args, f"{stack}_layers")
        if layers < (stack != without_layers):
            raise OptionError(f"--{stack}-layers {layers}: a stack has at least one layer")
        if args.post_norm and getattr(args, f"{stack}_normalize_before"):
            raise OptionError(f"--post-norm and --{stack}-normalize-before contradict each other")
    choices = read_choices(args, stacks)
    _check_training(args)
    _check_stacks(args, choices)
    cfg = TransformerConfig.from_namespace(args)
    for stack, choice in choices.items():
        getattr(cfg, stack).depth = choice
    return cfg


def read_choices(args: argparse.Namespace, stacks: Sequence[str]) -> dict[str, DepthChoice]:
    """Return the choice of each stack.

    :raises OptionError: a stack's own flag is of no use to it, a short flag to no stack, or options of a stack do not
        go together
    """
    choices = {stack: DepthChoice() for stack in stacks}
    # A Reformer's encoder may have no layers, which read nothing.
    layered = [stack for stack in stacks if getattr(args, f"{stack}_layers", None) != 0]
    for option in DepthChoice.options().values():
        uses = {stack: option.read_by(choice) for stack, choice in choices.items()}
        most = max(uses[stack] for stack in layered)
        short = option.default if option.own_flag_only else _read(option, args, option.default)
        if short != option.default and not most:
            off = f"--no-{option.flag}" if option.default is False else f"--{option.flag} {option.default}"
            raise OptionError(f"{_flag(option, short)}: only with {option.needs}; pass {off}")
        for stack, choice in choices.items():
            inherited = short if uses[stack] and uses[stack] >= most else option.default
            value = _read(option, args, inherited, stack)
            if value != option.default and not uses[stack]:
                raise OptionError(f"{_flag(option, value, stack)}: only with {option.needs}, not with {choice.scheme}")
            try:
                if value != choice.value(option):
                    choices[stack] = replace(choice, **choice.change(option, value))
            except ValueError as error:
                raise OptionError(f"--{stack}-ode-scheme {choice.scheme}: {error}") from error
    return choices


def _read(option: Option, args: argparse.Namespace, default: Any, stack: str = "") -> Any:
    """Return the value of a flag; Python code may give a whole number for any number."""
    value = getattr(args, option.dest(stack), None)
    return default if value is None else type(option.default)(value)


def _flag(option: Option, value: Any, stack: str = "") -> str:
    flag = f"--{stack}-{option.flag}" if stack else f"--{option.flag}"
    return flag if value is True else f"{flag} {value}"


def _check_training(args: argparse.Namespace) -> None:
    """Refuse options that no model could be trained with."""
    processes = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if processes > 1 and not args.ode_options_saved and not torch.distributed.is_initialized():
        raise OptionError(
            f"torchrun has started {processes} processes, and each would train by itself into one folder: without "
            f"GPUs use `ode-transformer train RECIPE --gpus 0 --processes {processes}`, or the flags of fairseq-train "
            f"that it prints with --dry-run"
        )
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        value = getattr(args, name) or 0
        if not 0 <= value < 1:
            raise OptionError(f"{flag_name(name)} {value}: a fraction from 0 up to 1, without 1")
    if args.cpu_bf16 and not getattr(args, "cpu", False) and not args.ode_options_saved:
        raise OptionError("--cpu-bf16 needs --cpu; a GPU has --amp, --fp16 and --bf16")
    if getattr(args, "adaptive_softmax_cutoff", None) is not None and args.log_depth_interval > 0:
        raise OptionError(
            "--log-depth-interval does not go with --adaptive-softmax-cutoff, which gives no probabilities"
        )


def _check_stacks(args: argparse.Namespace, choices: Mapping[str, DepthChoice]) -> None:
    """Refuse choices that do not go with the sizes of their stacks, or with each other."""
    for stack, choice in choices.items():
        layers, width, heads = (getattr(args, f"{stack}_{name}") for name in ("layers", "embed_dim", "attention_heads"))
        if stack == "decoder" and getattr(args, "joint_combination", "add") == "concat":
            width += args.encoder_embed_dim
        if args.post_norm and choice.is_lstm:
            raise OptionError(f"--post-norm: the layers of --{stack}-ode-scheme {LSTM} have no residuals to normalise")
        if heads < 1 or width % heads > 0:
            raise OptionError(f"--{stack}-attention-heads {heads}: the heads have to divide the width {width}")
        if choice.middle_layers > layers:
            raise OptionError(f"--ode-middle-layers {choice.middle_layers}: the {stack} has {layers} layers")
    merges = {stack: choice.lstm.merge for stack, choice in choices.items()}
    two_attentions = "encoder" in merges and merges.get("decoder", "").startswith("concat")
    if any(merge.startswith("concat") for merge in merges.values()) and not two_attentions:
        raise OptionError(
            f"--dlstm-merge concat joins the two attentions of a translation model's decoder layers: it needs "
            f"--decoder-ode-scheme {LSTM}"
        )
    has_residual = any(choice.value_residual != "none" for choice in choices.values())
    if has_residual and all(getattr(args, f"{stack}_layers") < 2 for stack in choices):
        raise OptionError("--value-residual: a stack of one layer has no later layer to add to")


def check_task(args: argparse.Namespace, task: Any, kind: str) -> None:
    """Refuse a task or a precision for which fairseq would build the model and then fail inside it.

    :param task: a task of fairseq; any other object is accepted
    :param kind: translation, masked_lm or language_modeling
    :raises OptionError: names what goes with the architecture, or with a CPU
    """
    if not isinstance(task, FairseqTask):
        return
    classes = {name: tuple(TASK_REGISTRY[task_name] for task_name in names) for name, names in _TASKS.items()}
    task_kind = next((name for name in classes if isinstance(task, classes[name])), "translation")
    if task_kind != kind:
        name = getattr(args, "task", type(task).__name__)
        raise OptionError(f"--task {name} does not go with --arch {args.arch}, which needs --task {kind}")
    on_cpu = getattr(args, "cpu", False) or not torch.cuda.is_available()
    for name in ("fp16", "bf16") if on_cpu and not getattr(args, "ode_options_saved", False) else ():
        if getattr(args, name, False):
            raise OptionError(f"--{name} needs a GPU; on a CPU --cpu --cpu-bf16 multiplies in bfloat16")
