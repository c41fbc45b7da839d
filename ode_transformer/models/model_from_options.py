"""Models built from their options alone, without a data set, and the operations of their matrix products."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import cache
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
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

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


def build_outline(
    args: argparse.Namespace, dictionaries: Sequence[int] = (4, 4), changes: Mapping[str, Any] | None = None
) -> BaseFairseqModel:
    """Build the model of these options without drawing its first weights, which takes most of the time.

    :param dictionaries: sizes of the source's and the target's dictionary
    :param changes: options that replace those of ``args``
    """
    with _UndrawnWeights():
        return build_from_options(argparse.Namespace(**(vars(args) | dict(changes or {}))), *dictionaries)


class _UndrawnWeights(TorchFunctionMode):
    """Leaves tensors as they are that would be filled with random numbers."""

    functions = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in self.functions:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


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

    with torch.no_grad():
        return count_operations(forward)


def count_operations(function: Callable[[], object]) -> int:
    """Count the operations of the matrix products in one call of ``function``, which gets zeros as their results."""
    # As plain products, because those of the fused attention of a CPU cannot be counted.
    with sdpa_kernel(SDPBackend.MATH), _ProductCounter() as counter:
        function()
    return counter.operations


# Position of the first factor, [.., N, M], among the arguments of a product; the second, [.., M, K], follows
_PRODUCTS = {torch.ops.aten.mm.default: 0, torch.ops.aten.bmm.default: 0}
_PRODUCTS |= {torch.ops.aten.addmm.default: 1, torch.ops.aten.baddbmm.default: 1}


class _ProductCounter(TorchDispatchMode):
    """Counts the operations of products without computing the plain ones."""

    operations = 0

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (first := _PRODUCTS.get(function)) is not None:
            x, y = args[first], args[first + 1]
        elif function.overloadpacket is ONEDNN_LINEAR:
            x, y = args[0], args[1].t()
        else:
            result = function(*args, **kwargs)
            if count := flop_registry.get(function.overloadpacket):
                self.operations += count(*args, **kwargs, out_val=result)
            return result
        self.operations += 2 * x.numel() * y.size(-1)
        return x.new_zeros(*x.shape[:-1], y.size(-1))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Import no compiler in order to keep it from this mode: that takes seconds."""
        return False
