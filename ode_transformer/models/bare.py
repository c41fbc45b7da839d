"""Builds a model from its options alone, without a data set: to look at it, to measure it, to fill it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_REGISTRY,
    BaseFairseqModel,
    FairseqEncoderDecoderModel,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


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


# Words of each text of the batch that `operations` counts: about a sentence.
WORDS = 25


def operations(model: BaseFairseqModel) -> int:
    """Floating-point operations of the matrix products in a forward pass over one sentence, or one pair of them."""
    tokens = torch.full((1, WORDS), 4)  # the first word of a made-up dictionary
    texts = {"src_tokens": tokens, "src_lengths": torch.tensor([WORDS])}
    if isinstance(model, FairseqEncoderDecoderModel):
        texts["prev_output_tokens"] = tokens
    model.eval()
    return operations_of(lambda: model(**texts))


def operations_of(work: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products in ``work``."""
    # As plain products, because the counter does not know the fused attention of a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()
