"""Dropout with noise that axes may share, and with support for fairseq's ``--retain-dropout``.

On a source × target grid, noise that is shared along one axis is the Dropout1d of Reformer, along both axes its
Dropout2d (Li et al. 2020, Figure 2b): whole lines or whole planes of a channel are zeroed together.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import dropout


class Dropout(nn.Module):
    """Zeroes random elements and rescales the others: in training, and while decoding with ``--retain-dropout``.

    :param probability: share of the elements that are zeroed
    :param shared: axes along which all elements share one draw
    """

    def __init__(self, probability: float, shared: Sequence[int] = ()) -> None:
        super().__init__()
        self.probability = probability
        self.shared = tuple(shared)
        self.retained = False

    @property
    def active(self) -> float:
        """Share of the elements that a call zeroes now."""
        return self.probability if self.training or self.retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.active or not self.shared:
            return dropout(x, self.active, training=True) if self.active else x
        shape = [1 if axis in self.shared else size for axis, size in enumerate(x.shape)]
        return x * dropout(x.new_ones(shape), self.active, training=True)

    def make_generation_fast_(
        self,
        name: str = "",
        retain_dropout: bool = False,
        retain_dropout_modules: Sequence[str] | None = None,
        **_: object,
    ) -> None:
        """Prepare for decoding; fairseq calls this on every module.

        :raises ValueError: if only some modules are to retain dropout: fairseq's option names its own layers
        """
        if retain_dropout and retain_dropout_modules is not None:
            raise ValueError("--retain-dropout-modules names layers of fairseq; ours take --retain-dropout alone")
        self.retained = retain_dropout
