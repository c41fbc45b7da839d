"""Operations of a model's matrix products in a forward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ode_transformer.decoding.teacher_forcing import forward_pass
from ode_transformer.nn import ONEDNN_LINEAR

SENTENCE_LENGTH = 25  # tokens of each text in the counted forward pass: about a sentence


def count_forward_operations(model: Any) -> int:
    """Count the operations of a forward pass over one sentence, or one pair of them; leaves evaluation mode on.

    An adaptive softmax is counted with all of its words, as in decoding.

    :param model: a plain model, or one of fairseq's
    """
    tokens = torch.full((1, SENTENCE_LENGTH), 4)  # 4 is the first word behind the four special symbols
    texts = {"src_tokens": tokens, "src_lengths": torch.tensor([SENTENCE_LENGTH])}
    if hasattr(model, "encoder") and hasattr(model, "decoder"):
        texts["prev_output_tokens"] = tokens
    model.eval()
    adaptive_softmax = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)

    def forward() -> None:
        output = forward_pass(model, texts)
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
