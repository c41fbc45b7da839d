"""Builds a model from its options alone, without a data set: to look at it, to measure it, to fill it."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel


def bare_model(args: argparse.Namespace, source: int, target: int | None = None) -> BaseFairseqModel:
    """The model of ``args.arch`` with made-up dictionaries.

    :param args: options; those that are absent take the architecture's defaults, in place
    :param source: size of the source's dictionary, the four special symbols included
    :param target: of the target's; by default, and where all embeddings are shared, it is one dictionary
    """
    shared = target is None or getattr(args, "share_all_embeddings", False)
    source_dictionary = made_up_dictionary(source)
    target_dictionary = source_dictionary if shared else made_up_dictionary(target)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    task = SimpleNamespace(source_dictionary=source_dictionary, target_dictionary=target_dictionary)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def made_up_dictionary(size: int) -> Dictionary:
    """A dictionary of ``size`` entries, the four special symbols included."""
    made = Dictionary()
    for number in range(size - len(made)):
        made.add_symbol(f"w{number}")
    return made
