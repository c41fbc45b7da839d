"""Options of a checkpoint as plain values: the stand-in for ``argparse.Namespace`` while a file is read.

fairseq keeps a model's options in an ``argparse.Namespace``, which torch's restricted unpickler refuses. Allowing the
class itself would let any option through, and fairseq evaluates some of them as Python. So the name is given to
:class:`SavedOptions` instead, in our own loading and in fairseq's: it takes plain values only, and asks every check
that the package has added. Then it turns into an ordinary ``argparse.Namespace``.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ode_transformer.support.errors import UserError, shorten

MAX_DEPTH = 10  # of lists within lists
MAX_VALUES = 100_000  # options and their entries, in one set of options
MAX_CHARACTERS = 100_000  # in one value
MAX_ALL_CHARACTERS = 1_000_000  # in one set of options
LARGEST = 2**63  # no size, count or seed is larger
# Names of files and folders, which may be called anything.
PATH_OPTIONS = {
    *("data", "path", "save_dir", "restore_file", "finetune_from_model", "results_path", "user_dir", "input"),
    *("tensorboard_logdir", "log_file", "aim_repo", "continue_once", "output_word_stats", "replace_unk", "align_dict"),
    *("encoder_embed_path", "decoder_embed_path", "sentencepiece_model", "subword_nmt_codes", "bpe_codes"),
    *("gpt2_encoder_json", "gpt2_vocab_bpe", "plasma_path", "comment", "suffix", "wandb_project"),
}

_DUNDER = re.compile(r"__\w+__")

OptionsCheck = Callable[[Mapping[str, Any]], None]
_checks: list[OptionsCheck] = []


def add_options_check(check: OptionsCheck) -> None:
    """Ask ``check`` about every set of options that is read from now on; it raises :class:`UserError` to refuse."""
    if check not in _checks:
        _checks.append(check)


def check_options(options: Mapping[str, Any]) -> None:
    """Ask every added check.

    :raises UserError: an option is refused
    """
    for check in _checks:
        check(options)


def option_mapping(options: object) -> Mapping[str, Any]:
    """Return options as a mapping, whichever of fairseq's forms they have; empty if they have none."""
    if isinstance(options, argparse.Namespace):
        return vars(options)
    return options if isinstance(options, Mapping) else {}


def saved_options(state: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """Return the options of a checkpoint's group; old checkpoints hold all options in one namespace."""
    return option_mapping((state.get("cfg") or {}).get(group) or state.get("args"))


class SavedOptions(argparse.Namespace):
    """``argparse.Namespace`` of a file that is being read; refuses options that could run code."""

    def __setstate__(self, state: object) -> None:
        options = plain_mapping(state)
        check_options(options)
        self.__dict__.update(options)
        self.__class__ = argparse.Namespace  # type: ignore[assignment]  # so that it is written as such

    def __reduce__(self) -> tuple[Any, ...]:
        return argparse.Namespace, ()  # one that was never filled


def plain_mapping(value: object) -> dict[str, Any]:
    """Return a deep copy of options, which nothing that is read later can change.

    :raises UserError: something in it is not a plain value
    """
    if not isinstance(value, Mapping):
        raise UserError(f"its options are of type {type(value).__name__}, not a set of names and values")
    copier = _Copier()
    return {copier.name(name): copier.copy(name, entry, 0) for name, entry in value.items()}


class _Copier:
    """Copies nested plain values and counts them."""

    def __init__(self) -> None:
        self.values = self.characters = 0

    @staticmethod
    def name(name: object) -> str:
        """Return a name of an option.

        :raises UserError: it is none
        """
        if type(name) is not str or not name or len(name) > 200 or "${" in name or _DUNDER.search(name):
            raise UserError(f"{shown(name)} is not the name of an option")
        return name

    def copy(self, name: str, value: object, depth: int) -> Any:
        """Return a copy of one value of the option ``name``.

        :raises UserError: it is not plain
        """
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            raise UserError(f"option {name}: more values than any option has")
        if value is None or type(value) is bool:
            return value
        if type(value) is int:
            if abs(value) > LARGEST:
                raise UserError(f"option {name}: a number of {value.bit_length()} bits is out of range")
            return value
        if type(value) is float:
            if math.isnan(value):
                raise UserError(f"option {name}: not a number")
            return value
        if type(value) is str:
            self.characters += len(value)
            if self.characters > MAX_ALL_CHARACTERS:
                raise UserError(f"option {name}: more text than all options together have")
            return _plain_string(name, value)
        if type(value) is list or type(value) is tuple:
            return type(value)(self.copy(name, entry, depth + 1) for entry in value)
        if type(value) is argparse.Namespace:
            copied = argparse.Namespace()
            vars(copied).update(self.copy(name, vars(value), depth))
            return copied
        if type(value) is dict:
            return {
                key if type(key) is int else self.name(key): self.copy(str(key), entry, depth + 1)
                for key, entry in value.items()
            }
        raise UserError(f"option {name}: a value of type {type(value).__name__} is not an option")


def _plain_string(name: str, value: str) -> str:
    if len(value) > MAX_CHARACTERS:
        raise UserError(f"option {name}: a text of {len(value):,} characters is not an option")
    if "${" in value:
        raise UserError(f"option {name}: {shown(value)} asks for another value (${{...}}), which is refused")
    if name not in PATH_OPTIONS and _DUNDER.search(value):
        raise UserError(f"option {name}: {shown(value)} names an internal of Python (__...__), which is refused")
    return value


def shown(value: object) -> str:
    """Return a value as it stands in a message: on one line, not long."""
    return shorten(repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__, 60)


torch.serialization.add_safe_globals([(SavedOptions, "argparse.Namespace")])
