"""Models built from their options alone, without a data set."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel


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
    task = SimpleNamespace(source_dictionary=source_dictionary, target_dictionary=target_dictionary)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def numbered_dictionary(size: int) -> Dictionary:
    """Return a dictionary of ``size`` entries: the four special symbols, then w0, w1, …."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary
