"""Floating-point operations of a model's matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ode_transformer.nn import ONEDNN_LINEAR

SENTENCE_LENGTH = 25  # tokens of each text in the counted forward pass: about a sentence


def _operations_of_linear_map(x: Sequence[int], weight: Sequence[int], *_: object, **__: object) -> int:
    return 2 * prod(x) * weight[0]


_LINEAR_MAP = {ONEDNN_LINEAR: _operations_of_linear_map} if ONEDNN_LINEAR is not None else {}


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
