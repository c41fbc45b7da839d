"""Checks of a recipe that only fairseq can answer: its architectures, its flags and their values."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ode_transformer.models import fairseq_parser
from ode_transformer.recipes.architectures import architectures, check_architecture
from ode_transformer.recipes.file_flags import Flags
from ode_transformer.recipes.recipe import Overrides, Problem, Recipe
from ode_transformer.support import commands
from ode_transformer.support.arguments import (
    decay_rates,
    length_penalty,
    non_negative_float,
    non_negative_int,
    positive_float,
    positive_int,
    probability,
)
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import Key

# Values that fairseq's parser accepts but no training or search can use.
RANGES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("dropout", "attention-dropout", "activation-dropout", "label-smoothing"), probability),
    **dict.fromkeys(("word-dropout-prob",), probability),
    **dict.fromkeys(("max-tokens", "max-update", "max-epoch", "beam", "max-len-b", "tokens-per-sample"), positive_int),
    **dict.fromkeys(("warmup-updates", "patience", "no-repeat-ngram-size", "min-len", "seed"), non_negative_int),
    **dict.fromkeys(("lr", "adam-eps"), positive_float),
    **dict.fromkeys(("clip-norm", "weight-decay"), non_negative_float),
    "adam-betas": decay_rates,
    "update-freq": positive_int,
    "lenpen": length_penalty,
}

# Flags that an experiment sets itself, so that a recipe must not.
RESERVED_FLAGS = {
    *("user-dir", "task", "arch", "source-lang", "target-lang", "update-freq"),
    *("stop-time-hours", "distributed-world-size", "distributed-port", "cpu", "fp16", "bf16", "max-tokens-valid"),
    *("path", "gen-subset", "remove-bpe", "required-batch-size-multiple"),
    "log-format",
}

# Flags that decide which further flags there are.
DECIDING_FLAGS = ("task", "arch", "criterion", "optimizer", "lr-scheduler")


def fairseq_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield the key and the description of each architecture, flag or value that fairseq does not accept."""
    try:
        check_architecture(recipe.arch, recipe.task, recipe.arch)
    except UserError as error:
        yield ("arch",), str(error)
        return
    names = list(architectures(recipe.task))
    for key, flags in flag_tables(recipe).items():
        archs = [recipe.arch] if len(key) == 1 else fnmatch.filter(names, str(key[-2]))
        if archs:
            program = recipe.decoder if key[-1] == "generate" else "fairseq-train"
            settings = {"task": recipe.task, **recipe.train, **flags, "arch": archs[0]}
            parser = fairseq_parser.parser_for(program, deciding_words(settings))
            yield from (((*key, name), text) for name, text in _flag_problems(parser, flags))
        else:
            yield key[:-1], f"no architecture for {recipe.task} has such a name"


def flag_tables(recipe: Recipe) -> Mapping[Key, Flags]:
    """Return every table of fairseq flags in a recipe, by its key in the file."""
    sections: dict[Key, Recipe | Overrides] = {(): recipe, **recipe.override_sections()}
    tables: dict[Key, Flags] = {
        (*key, table): getattr(section, table) for key, section in sections.items() for table in ("train", "generate")
    }
    return tables | {("size",): recipe.size}


def deciding_words(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the flags of ``DECIDING_FLAGS`` as words of a command line."""
    return tuple(commands.flags({name: flags[name] for name in DECIDING_FLAGS if name in flags}))


def _flag_problems(parser: argparse.ArgumentParser, flags: Flags) -> Iterator[tuple[str, str]]:
    for name, value in flags.items():
        if name in RESERVED_FLAGS:
            yield name, "the runner sets this flag"
        elif problem := flag_problem(parser, name, value):
            yield name, problem


def flag_problem(parser: argparse.ArgumentParser, name: str, value: Any) -> str | None:
    """Return a description of what is wrong with a flag of a recipe, or None."""
    action = parser._option_string_actions.get(f"--{name}")
    if action is None:
        return "fairseq has no such flag here"
    is_switch = action.nargs == 0
    if is_switch != isinstance(value, bool):
        return f"{value!r}: expected {'true or false' if is_switch else 'a value'}"
    return None if is_switch else _value_problem(parser, action, name, str(value))


def _value_problem(parser: argparse.ArgumentParser, action: argparse.Action, name: str, text: str) -> str | None:
    try:
        # argparse has no public way to check a single value.
        parser._check_value(action, parser._get_value(action, text))
        RANGES.get(name, str)(text)
    except argparse.ArgumentError as error:
        return error.message.replace("invalid <lambda> value", "invalid value")
    except argparse.ArgumentTypeError as error:
        return str(error)
    return None
