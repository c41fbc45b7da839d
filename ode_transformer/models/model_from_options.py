"""Models built from their options alone, without a data set."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields
from types import SimpleNamespace

from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    BaseFairseqModel,
)


def build_from_options(args: argparse.Namespace, source_size: int, target_size: int | None = None) -> BaseFairseqModel:
    """Build the model of ``args.arch`` with dictionaries of numbered words.

    :param args: options; those that are absent are set to the architecture's defaults, in place
    :param source_size: entries of the source dictionary, the four special symbols included
    :param target_size: entries of the target dictionary; by default, and where all embeddings are shared, the source
        dictionary serves both sides
    """
    source_dictionary = target_dictionary = numbered_dictionary(source_size)
    if target_size is not None and not getattr(args, "share_all_embeddings", False):
        target_dictionary = numbered_dictionary(target_size)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    _set_config_defaults(args)
    task = SimpleNamespace(source_dictionary=source_dictionary, target_dictionary=target_dictionary)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def model_flags(arch: str) -> list[argparse.Action]:
    """Return the flags that the model of an architecture declares; ``default`` is "==SUPPRESS==" where it has none."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return parser._actions


def _set_config_defaults(args: argparse.Namespace) -> None:
    """Set options that neither ``args`` nor the architecture has to the defaults of the model's configuration class.

    fairseq's parser leaves them out for models that have such a class, among them its ``transformer_lm``.
    """
    config = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY[args.arch])
    for field in fields(config) if config is not None else ():
        # from_namespace of the class would set such a reference, "${task.max_target_positions}", as a text.
        refers_elsewhere = isinstance(field.default, str) and field.default.startswith("${")
        if field.default is not MISSING and not refers_elsewhere and not hasattr(args, field.name):
            setattr(args, field.name, field.default)


def numbered_dictionary(size: int) -> Dictionary:
    """Return a dictionary of ``size`` entries: the four special symbols, then w0, w1, …."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary
