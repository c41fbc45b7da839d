"""Lists of a model's modules: fairseq's trainer walks through all of them several times in each update."""

from collections.abc import Callable, Iterable
from typing import Any, Self

from fairseq.models import FairseqEncoder


class ModuleLists:
    """Base of a model, before a class of fairseq, that walks once after each validation instead."""

    modules: Callable[[], Iterable[Any]]  # of torch.nn.Module
    _all: tuple[Any, ...] = ()
    _counting: tuple[Any, ...] = ()  # modules that are told the number of updates

    def train(self, mode: bool = True) -> Self:
        if not (mode and self._all and all(module.training for module in self._all)):
            super().train(mode)  # type: ignore[misc]
            self._all = tuple(self.modules())
            walks = FairseqEncoder.set_num_updates, type(self).set_num_updates, None
            self._counting = tuple(m for m in self._all if getattr(type(m), "set_num_updates", None) not in walks)
        return self

    def set_num_updates(self, num_updates: int) -> None:
        if not self._all:  # before the first step, as when a checkpoint is loaded
            super().set_num_updates(num_updates)  # type: ignore[misc]
        for module in self._counting:
            module.set_num_updates(num_updates)
