"""Command-line options of our models: their flags, their defaults, and which combinations and tasks are refused.

The flags of depth are made from the fields of ``DepthChoice``.
"""

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from omegaconf import OmegaConf

from ode_transformer.nn import LSTM, Choice, DepthChoice, ModelChoice, Option, StackShape, idle_options, refusal
from ode_transformer.support.arguments import (
    finite_float,
    flag_name,
    non_negative_float,
    non_negative_int,
    positive_float,
    positive_int,
    probability,
    whole_number,
)
from ode_transformer.support.errors import OptionError

RULE = (
    "A flag of depth, such as --ode-function, sets both stacks; a stack that has no use for it ignores it. With the "
    "name of a stack in front, such as --decoder-ode-function, it sets that stack alone."
)
_NUMBERS: dict[tuple[type, str], Callable[[str], float]] = {
    (int, "positive"): positive_int,
    (int, "non-negative"): non_negative_int,
    (int, "any"): whole_number,
    (float, "positive"): positive_float,
    (float, "non-negative"): non_negative_float,
    (float, "fraction"): probability,
    (float, "any"): finite_float,
}
_LISTED = 10  # values that a usage line shows

# Defaults of the flags that all our models have: those of a short flag of depth, and the others.
DEPTH_DEFAULTS: dict[str, Any] = {
    **{option.dest(): option.default for option in DepthChoice.options().values() if not option.own_flag_only},
    **{option.dest(): option.default for option in ModelChoice.options().values()},
    "encoder_ode_scheme": DepthChoice().scheme,
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
    add_choice_arguments(parser, ModelChoice, stacks)


def add_choice_arguments(parser: argparse.ArgumentParser, of_class: type[Choice], stacks: Collection[str] = ()) -> None:
    """Add a flag for each option that a model with these stacks has once."""
    for option in of_class.options().values():
        if set(option.stacks) <= set(stacks):
            parser.add_argument(f"--{option.flag}", **_settings(option))


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
    choices = read_choices(vars(args), stacks)
    _check_training(args)
    _check_stacks(args, choices)
    cfg = TransformerConfig.from_namespace(args)
    for stack, choice in choices.items():
        getattr(cfg, stack).depth = choice
    return cfg


def read_choices(options: Mapping[str, Any], stacks: Sequence[str]) -> dict[str, DepthChoice]:
    """Return the choice of each stack.

    :raises OptionError: a stack's own flag is of no use to it, a short flag to no stack, or options of a stack do not
        go together
    """
    values: dict[str, dict[str, Any]] = {stack: {} for stack in stacks}
    drafts = {stack: DepthChoice.draft({}) for stack in stacks}
    # A Reformer's encoder may have no layers, which read nothing.
    layered = [stack for stack in stacks if options.get(f"{stack}_layers") != 0]
    trained = _is_trained(options)
    for option in DepthChoice.options().values():
        short = option.default if option.own_flag_only else _read(option, options, option.default)
        set_by_short = [stack for stack in stacks if option.is_set_by_short_flag(drafts[stack])]
        if trained and not set_by_short:  # Before, a short flag that was for no stack set each that could read it.
            set_by_short = [stack for stack in stacks if option.read_by(drafts[stack])]
        if short != option.default and not set(set_by_short) & set(layered):
            off = f"--no-{option.flag}" if option.default is False else f"--{option.flag} {option.default}"
            raise OptionError(f"{_flag(option, short)}: only with {option.short_needs or option.needs}; pass {off}")
        for stack in stacks:
            value = _read(option, options, short if stack in set_by_short else option.default, stack)
            if value == option.default:
                continue
            if not option.read_by(drafts[stack]):
                scheme = drafts[stack].scheme
                raise OptionError(f"{_flag(option, value, stack)}: only with {option.needs}, not with {scheme}")
            values[stack][option.name] = value
            drafts[stack] = DepthChoice.draft(values[stack])
    choices = {stack: _build_choice(stack, drafts[stack].scheme, values[stack]) for stack in stacks}
    if not trained:
        _refuse_idle_options(options, choices)
    return choices


def _is_trained(options: Mapping[str, Any]) -> bool:
    """Tell whether parameters were trained before: those of a saved model, or those that a training begins from."""
    if options.get("ode_options_saved") or options.get("finetune_from_model"):
        return True
    restored = options.get("restore_file") or ""
    if restored == "checkpoint_last.pt":  # fairseq's default
        restored = os.path.join(options["save_dir"], restored)
    return os.path.isfile(restored)


def _build_choice(stack: str, scheme: str, values: Mapping[str, Any]) -> DepthChoice:
    try:
        return DepthChoice(**DepthChoice.arguments(values), accepts_idle=True)
    except ValueError as error:
        raise OptionError(f"--{stack}-ode-scheme {scheme}: {error}") from error


def _refuse_idle_options(options: Mapping[str, Any], choices: Mapping[str, DepthChoice]) -> None:
    """Refuse a stack's own flag that changes nothing, and a short one that changes nothing in any stack."""
    idle = {stack: dict(idle_options(choice, _shape(options, stack, choices))) for stack, choice in choices.items()}
    for option in DepthChoice.options().values():
        changed = [stack for stack, choice in choices.items() if choice.value(option) != option.default]
        reasons = {stack: idle[stack][option.name] for stack in changed if option.name in idle[stack]}
        for stack, reason in reasons.items():
            own = options.get(option.dest(stack)) is not None
            if own or len(reasons) == len(changed):
                flag = _flag(option, choices[stack].value(option), stack if own else "")
                raise OptionError(f"{flag}: {reason}")
    for stack, reasons in idle.items():
        if "" in reasons:
            raise OptionError(f"--{stack}-ode-scheme {choices[stack].scheme}: {reasons['']}")


def _shape(options: Mapping[str, Any], stack: str, stacks: Collection[str]) -> StackShape:
    """Return the sizes of a stack that decide over its options: a decoder with an encoder has two attentions."""
    return StackShape(options[f"{stack}_layers"], len(stacks) if stack == "decoder" else 1)


def _read(option: Option, options: Mapping[str, Any], default: Any, stack: str = "") -> Any:
    """Return the value of a flag; Python code may give a whole number for any number."""
    value = options.get(option.dest(stack))
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
        width, heads = (getattr(args, f"{stack}_{name}") for name in ("embed_dim", "attention_heads"))
        if stack == "decoder" and getattr(args, "joint_combination", "add") == "concat":
            width += args.encoder_embed_dim
        if args.post_norm and choice.is_lstm:
            raise OptionError(f"--post-norm: the layers of --{stack}-ode-scheme {LSTM} have no residuals to normalise")
        if heads < 1 or width % heads > 0:
            raise OptionError(f"--{stack}-attention-heads {heads}: the heads have to divide the width {width}")
        if (reason := refusal(choice, _shape(vars(args), stack, choices))) is not None:
            raise OptionError(f"--{stack}-ode-scheme {choice.scheme}: {reason}")


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
