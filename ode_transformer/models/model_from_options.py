"""Models built from their options alone, without a data set."""

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    BaseFairseqModel,
)

from ode_transformer.checkpoints.plain_model import UndrawnWeights
from ode_transformer.models.admission import admitted_model, declared_flags


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
    options_class = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY[args.arch])
    # fairseq's parser leaves out the options of a model that has such a class, among them its transformer_lm.
    for name, value in vars(options_class()).items() if options_class is not None else ():
        if not str(value).startswith("${"):  # a reference to another, "${task.max_target_positions}"
            vars(args).setdefault(name, value)
    task = SimpleNamespace(source_dictionary=source_dictionary, target_dictionary=target_dictionary)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def build_admitted(options: Mapping[str, Any], source_size: int, target_size: int) -> BaseFairseqModel:
    """Build the model of a stranger's options.

    :raises UserError: an option is refused
    """
    return build_from_options(argparse.Namespace(**admitted_model(options)), source_size, target_size)


def build_outline(
    args: argparse.Namespace, dictionaries: Sequence[int] = (4, 4), changes: Mapping[str, Any] | None = None
) -> BaseFairseqModel:
    """Build the model of these options without drawing its first weights, which takes most of the time.

    :param dictionaries: sizes of the source's and the target's dictionary
    :param changes: options that replace those of ``args``
    """
    with UndrawnWeights():
        return build_from_options(argparse.Namespace(**(vars(args) | dict(changes or {}))), *dictionaries)


def model_flags(arch: str) -> list[argparse.Action]:
    """Return the flags that the model of an architecture declares; ``default`` is "==SUPPRESS==" where it has none."""
    return declared_flags(ARCH_MODEL_REGISTRY[arch])


@cache
def numbered_dictionary(size: int) -> Dictionary:
    """Return the dictionary of ``size`` entries, for all to read: the four special symbols, then w0, w1, …."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary
