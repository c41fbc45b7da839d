"""Many tensors as slices of one, so that a few launches reach all their numbers."""

from collections.abc import Sequence
from copy import copy
from itertools import accumulate

import torch
from torch import Tensor

ALIGNMENT = 64  # numbers; a half-precision product of matrices that start elsewhere falls back to a slower kernel


def suits(device: torch.device) -> bool:
    """Tell whether tensors of a device are better joined: on a CPU, each one of a checkpoint would save all."""
    return device.type == "cuda"


class FlatTensor:
    """One tensor with room for several, each of which begins at a multiple of ``ALIGNMENT`` numbers.

    :param tensors: tensors whose shapes, device and type ``parts`` have; the parts begin as zeros
    :param dtype: type of the numbers in place of theirs
    """

    def __init__(self, tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> None:
        sizes = [-(-tensor.numel() // ALIGNMENT) * ALIGNMENT for tensor in tensors]
        self.starts = list(accumulate(sizes, initial=0))
        self.whole = tensors[0].new_zeros(self.starts[-1], dtype=dtype or tensors[0].dtype).detach()
        self.parts = [self.part(number, tensor.shape) for number, tensor in enumerate(tensors)]

    def part(self, number: int, shape: torch.Size) -> Tensor:
        """Return a part, which has this shape."""
        return self.whole[self.starts[number] :][: shape.numel()].view(shape)

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


@torch.no_grad()
def join_gradients(parameters: Sequence[Tensor], flat: FlatTensor) -> FlatTensor:
    """Return a flat tensor of the parameters' gradients, whose parts are their ``grad`` from then on.

    :param flat: one of their shapes, to which gradients are copied unless they are parts of such a tensor already, as
        those of a recorded training; its part is zero where a parameter has no gradient
    """
    if any(p.grad is not None and p.grad is not part for p, part in zip(parameters, flat.parts, strict=True)):
        flat = _flat_tensor_of([p.grad for p in parameters], flat) or flat
    missing = [part for p, part in zip(parameters, flat.parts, strict=True) if p.grad is None]
    places = [(p, p.grad, part) for p, part in zip(parameters, flat.parts, strict=True)]
    moved = [(p, gradient, part) for p, gradient, part in places if gradient is not None and gradient is not part]
    if missing:
        torch._foreach_zero_(missing)  # which a norm counts
    if moved:
        torch._foreach_copy_([part for *_, part in moved], [gradient for _, gradient, _ in moved])
    for parameter, _, part in moved:
        parameter.grad = part
    return flat


def _flat_tensor_of(tensors: Sequence[Tensor | None], like: FlatTensor) -> FlatTensor | None:
    """Return the flat tensor whose parts tensors are; None if they are others. Those that are None may be any part."""
    places = [(x, x.storage_offset() - start) for x, start in zip(tensors, like.starts, strict=False) if x is not None]
    storage, begin = places[0][0].untyped_storage(), places[0][1]
    for x, own_begin in places:
        if (x.untyped_storage().data_ptr(), own_begin, x.dtype) != (storage.data_ptr(), begin, like.whole.dtype):
            return None
    if begin < 0 or storage.nbytes() < (begin + len(like.whole)) * like.whole.element_size():
        return None
    flat = copy(like)
    flat.whole = like.whole.new_empty(0).set_(storage, begin, like.whole.shape)  # type: ignore[call-overload]
    shapes = [part.shape for part in like.parts]
    flat.parts = [
        flat.part(n, shape) if x is None else x for n, (x, shape) in enumerate(zip(tensors, shapes, strict=True))
    ]
    return flat
