"""Models built from their options alone, without a data set, and the operations of their matrix products."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    BaseFairseqModel,
    FairseqEncoderDecoderModel,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ode_transformer.checkpoints.admission import declared_flags
from ode_transformer.nn import ONEDNN_LINEAR


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


def meta_model(
    args: argparse.Namespace, dictionaries: Sequence[int] = (4, 4), changes: Mapping[str, Any] | None = None
) -> BaseFairseqModel:
    """Build the model of these options without memory for its parameters, which have sizes but no values.

    :param dictionaries: sizes of the source's and the target's dictionary
    :param changes: options that replace those of ``args``
    """
    options = argparse.Namespace(**(vars(args) | dict(changes or {})))
    with torch.device("cpu" if options.task == "masked_lm" else "meta"):  # RoBERTa copies its first weights
        return build_from_options(options, *dictionaries)


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


SENTENCE_LENGTH = 25  # tokens of each text in the counted forward pass: about a sentence


# Operations of the products that the counter does not know, by the shapes of x and of the weight
_LINEAR_MAP = {ONEDNN_LINEAR: lambda x, weight, *_, **__: 2 * prod(x) * weight[0]} if ONEDNN_LINEAR is not None else {}


def count_forward_operations(model: BaseFairseqModel) -> int:
    """Count the operations of a forward pass over one sentence, or one pair of them; leaves evaluation mode on.

    An adaptive softmax is counted with all of its words, as in decoding.
    """
    tokens = torch.full((1, SENTENCE_LENGTH), 4)  # 4 is the first word behind the four special symbols
    texts = {"src_tokens": tokens, "src_lengths": torch.tensor([SENTENCE_LENGTH])}
    if isinstance(model, FairseqEncoderDecoderModel):
        texts["prev_output_tokens"] = tokens
    model.eval()
    adaptive_softmax = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)

    def forward() -> None:
        output = model(**texts)
        if adaptive_softmax is not None:  # which fairseq leaves to the loss
            adaptive_softmax.get_log_prob(output[0], None)

    return count_operations(forward)


def count_operations(function: Callable[[], object]) -> int:
    """Count the operations of one call of ``function``."""
    # As plain products, because the counter does not know the fused attention of a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=_LINEAR_MAP) as counter:
        function()
    return counter.get_total_flops()
