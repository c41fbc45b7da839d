"""Depth schemes: how a representation moves through a stack of layers.

    state = scheme.start(y)
    y, state = scheme(f, y, state, n)      for each block n = 0, 1, …

A block is a vector field f(y, stage): a layer, or one of its sub-layers. A scheme of several stages says which stage
evaluates f. What a scheme reads of earlier blocks beside y is its own state; one-step schemes have none.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Field = Callable[[Tensor, int], Tensor]  # f(y, stage)


class Scheme(nn.Module, ABC):
    """Base of all schemes. A step is a pure function, so that it can be computed again, recorded and compiled."""

    def start(self, y0: Tensor) -> Any:
        """Return the state below the first block: a tree of tensors, whose ``history`` only later sums read."""
        return None

    @abstractmethod
    def forward(self, f: Field, y: Tensor, state: Any, block: int) -> tuple[Tensor, Any]:
        """Step one block.

        :param y: [.., dim]
        :param block: number of the block among those that are stepped, from 0 on
        :returns: the next y and state
        """

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return the learned weights in the equation of a block, numbers [] or vectors [dim], without stage weights."""
        return ()


def module_of_block(modules: nn.ModuleList, block: int) -> nn.Module:
    """Return the module of a block, or the one that all blocks share."""
    return modules[block if len(modules) > 1 else 0]
