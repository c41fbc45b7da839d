"""Dropout with noise that axes may share, and with support for fairseq's ``--retain-dropout``.

On a source × target grid, noise that is shared along one axis is the Dropout1d of Reformer, along both axes its
Dropout2d (Li et al. 2020, Figure 2b): whole lines or whole planes of a channel are zeroed together.

On a CPU, PyTorch draws a random number of 32 bits or more for each element, which takes longer than the rest of a small
layer. Here, four elements share one of 64 bits, so that probabilities are multiples of 2⁻¹⁶.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_LEVELS = 2**16  # values of the bits that decide about one element


class Dropout(nn.Module):
    """Zeroes random elements and rescales the others: in training, and while decoding with ``--retain-dropout``.

    :param shared: axes along which all elements share one draw
    """

    def __init__(self, probability: float, shared: Sequence[int] = ()) -> None:
        super().__init__()
        self.probability = probability
        self.shared = tuple(shared)
        self.retained = False

    @property
    def active(self) -> float:
        """Fraction of the elements that a call zeroes now."""
        return self.probability if self.training or self.retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.active or not self.shared:
            return dropout(x, self.active) if self.active else x
        shape = [1 if axis in self.shared else size for axis, size in enumerate(x.shape)]
        return x * nn.functional.dropout(x.new_ones(shape), self.active, training=True)

    def make_generation_fast_(
        self, retain_dropout: bool = False, retain_dropout_modules: Sequence[str] | None = None, **_: object
    ) -> None:
        """Prepare for decoding; fairseq calls this on every module.

        :raises ValueError: if only some modules are to retain dropout: fairseq's option names its own layers
        """
        if retain_dropout and retain_dropout_modules is not None:
            raise ValueError("--retain-dropout-modules names layers of fairseq; ours take --retain-dropout alone")
        self.retained = retain_dropout


def dropout(x: Tensor, probability: float) -> Tensor:
    """Zero each element with ``probability`` and divide the others by what remains of 1."""
    threshold = round(probability * _LEVELS)
    if x.device.type != "cpu" or threshold in (0, _LEVELS):
        return nn.functional.dropout(x, probability, training=True)
    result: Tensor = _Dropout.apply(x, threshold)
    return result


class _Dropout(torch.autograd.Function):
    """Dropout that keeps one byte for each element, where PyTorch's keeps a number of x's type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
        survivors = (bits >= threshold - _LEVELS // 2).view(torch.uint8)
        ctx.scale = _LEVELS / (_LEVELS - threshold)
        ctx.save_for_backward(survivors)
        return (x * survivors).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (survivors,) = ctx.saved_tensors
        return gradients[0] * survivors * ctx.scale, None


class WordDropout(nn.Module):
    """Zeroes the embeddings of random positions, without rescaling the others.

    As in the released ODE Transformer code, it acts before positions are added, on any symbol of source and target.
    That code stores the fraction that it keeps; here, as everywhere in PyTorch, it is the fraction that is zeroed.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, embedding: Tensor) -> Tensor:
        """Zero positions in training, [B, T, C] -> [B, T, C]."""
        if not self.training or self.probability == 0.0:
            return embedding
        keep = torch.rand(embedding.shape[:-1], device=embedding.device) >= self.probability  # [B, T]
        return embedding * keep.unsqueeze(-1).to(embedding.dtype)
