"""Many tensors as slices of one, so that a few launches reach all their numbers."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

ALIGNMENT = 64  # numbers; a half-precision product of matrices that start elsewhere falls back to a slower kernel


class FlatTensor:
    """One tensor with room for several, each of which begins at a multiple of ``ALIGNMENT`` numbers.

    :param tensors: tensors whose shapes, device and type ``parts`` have; the parts begin as zeros
    :param dtype: type of the numbers in place of theirs
    """

    def __init__(self, tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> None:
        sizes = [-(-tensor.numel() // ALIGNMENT) * ALIGNMENT for tensor in tensors]
        self.starts = list(accumulate(sizes, initial=0))
        self.whole = tensors[0].new_zeros(self.starts[-1], dtype=dtype or tensors[0].dtype).detach()
        self.parts = [
            self.whole[start:end][: tensor.numel()].view(tensor.shape)
            for tensor, (start, end) in zip(tensors, pairwise(self.starts), strict=True)
        ]

    def span(self, begin: int, end: int) -> Tensor:
        """Return the parts from number ``begin`` up to ``end``, without ``end``, as one slice."""
        return self.whole[self.starts[begin] : self.starts[end]]


@torch.no_grad()
def flatten(parameters: Sequence[Tensor]) -> FlatTensor:
    """Move the parameters into one flat tensor; each stays the same object with the same values."""
    flat = FlatTensor(parameters)
    torch._foreach_copy_(flat.parts, list(parameters))
    for parameter, values in zip(parameters, flat.parts, strict=True):
        parameter.data = values
    return flat


def static_gradients(parameters: Sequence[Tensor]) -> FlatTensor:
    """Return the flat gradients of the parameters, the same ones at every call; the parameters keep them alive."""
    first = parameters[0]
    if not hasattr(first, "static_gradients"):
        first.static_gradients = FlatTensor(parameters)  # type: ignore[attr-defined]
    return first.static_gradients  # type: ignore[attr-defined]
