"""Dropout that fairseq's ``--retain-dropout`` reaches."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import dropout


class Dropout(nn.Module):
    """Zeroes a share of the elements and rescales the others: in training, and while decoding if that is asked for.

    :param probability: share of the elements
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.retained = False

    @property
    def active(self) -> float:
        """The share that is dropped now."""
        return self.probability if self.training or self.retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.active, training=True) if self.active else x

    def make_generation_fast_(
        self,
        name: str = "",
        retain_dropout: bool = False,
        retain_dropout_modules: Sequence[str] | None = None,
        **_: object,
    ) -> None:
        """fairseq calls this on every module before it decodes.

        :raises ValueError: if dropout is to be retained in some modules only: fairseq means names of its own layers
        """
        if retain_dropout and retain_dropout_modules is not None:
            raise ValueError("--retain-dropout-modules names layers of fairseq; ours take --retain-dropout alone")
        self.retained = retain_dropout
