"""Command-line options of our models: their flags, their defaults, and which combinations and tasks are refused.

The flags of depth are made from the fields of ``DepthChoice``.
"""

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from omegaconf import OmegaConf

from ode_transformer.models.stacks import option_errors
from ode_transformer.nn import (
    LSTM,
    Choice,
    DepthChoice,
    ModelChoice,
    Option,
    TransformerSizes,
    check_choices,
    read_choices,
    read_grid,
    read_sizes,
)
from ode_transformer.nn.model_options import OFF, UNSUPPORTED_OPTIONS
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
    args: argparse.Namespace, stacks: tuple[str, ...], unsupported: Sequence[str] = (), has_grid: bool = False
) -> TransformerConfig:
    """Return fairseq's configuration of a model, with the choice of each stack as ``cfg.encoder.depth``.

    ``cfg.sizes`` returns the sizes for a dictionary, ``cfg.grid`` are the options of a grid.

    :param stacks: those that the model has
    :param unsupported: further options that the model does not implement
    :param has_grid: the model is a Reformer
    :raises OptionError: options do not go together; names the flag, its value, and what is allowed
    """
    options = vars(args)
    for name in (*UNSUPPORTED_OPTIONS, *unsupported):
        if options.get(name) not in OFF:
            raise OptionError(f"{flag_name(name)} is not supported by --arch {args.arch}")
    for stack in stacks:
        if args.post_norm and getattr(args, f"{stack}_normalize_before"):
            raise OptionError(f"--post-norm and --{stack}-normalize-before contradict each other")
    _check_training(args)
    grid = read_grid(options) if has_grid else None
    with option_errors():
        choices = read_choices(options, stacks, _is_trained(options))
        for stack, choice in choices.items():
            if args.post_norm and choice.is_lstm:
                scheme = f"--{stack}-ode-scheme {LSTM}"
                raise OptionError(f"--post-norm: the layers of {scheme} have no residuals to normalise")
        check_choices(read_sizes({**options, "share_all_embeddings": False}, 4), choices, grid)
    cfg = TransformerConfig.from_namespace(args)
    for stack, choice in choices.items():
        getattr(cfg, stack).depth = choice
    cfg.grid, cfg.sizes = grid, partial(_sizes, options)
    return cfg


def _is_trained(options: Mapping[str, Any]) -> bool:
    """Tell whether parameters were trained before: those of a saved model, or those that a training begins from."""
    if options.get("ode_options_saved") or options.get("finetune_from_model"):
        return True
    restored = options.get("restore_file") or ""
    if restored == "checkpoint_last.pt":  # fairseq's default
        restored = os.path.join(options["save_dir"], restored)
    return os.path.isfile(restored)


def _sizes(options: Mapping[str, Any], cfg: TransformerConfig, dictionary: Any) -> TransformerSizes:
    """Return the sizes of a model, both of whose sides have as many words as a dictionary."""
    sizes = read_sizes(options, len(dictionary))
    shares_output = cfg.share_decoder_input_output_embed  # which sharing of all embeddings sets
    return replace(sizes, share="output" if shares_output else "none")


def _check_training(args: argparse.Namespace) -> None:
    """Refuse options that no model could be trained with."""
    processes = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if processes > 1 and not args.ode_options_saved and not torch.distributed.is_initialized():
        raise OptionError(
            f"torchrun has started {processes} processes, and each would train by itself into one folder: without "
            f"GPUs use `ode-transformer train RECIPE --gpus 0 --processes {processes}`, or the flags of fairseq-train "
            f"that it prints with --dry-run"
        )
    if args.cpu_bf16 and not getattr(args, "cpu", False) and not args.ode_options_saved:
        raise OptionError("--cpu-bf16 needs --cpu; a GPU has --amp, --fp16 and --bf16")
    if getattr(args, "adaptive_softmax_cutoff", None) is not None and args.log_depth_interval > 0:
        raise OptionError(
            "--log-depth-interval does not go with --adaptive-softmax-cutoff, which gives no probabilities"
        )


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
