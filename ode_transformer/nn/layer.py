"""A layer as a vector field: its sub-layers, merged or one by one.

    merged layer   F(y) = a + FFN(LN(y + a)),   a = SAN(LN(y))     so that y + F(y) is the pre-norm layer

The papers step the merged layer, "SAN + FFN", without writing its F; here it is what the residual layer adds to y.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.sublayers import SubLayer
from ode_transformer.numerics import Scheme

# Function F of one layer. The papers' equations step what the layer adds to y; the released code steps the whole layer
# with its residuals, and adds y once more.
FUNCTIONS = ("increment", "layer-output")

STACKS = ("encoder", "decoder")

# Names of sub-layers that form one block, and whether a scheme steps the block.
Group = tuple[tuple[str, ...], bool]


class LayerId(NamedTuple):
    """A layer of a model, numbered from 1 on in its stack."""

    stack: str
    number: int

    def __str__(self) -> str:
        return f"{self.stack} layer {self.number}"


class BlockId(NamedTuple):
    """A stepped block of a model: a layer, or some of its sub-layers.

    :param sublayers: such as ``ffn`` or ``self_attn+ffn``; empty where the layer is one block
    """

    stack: str
    number: int
    sublayers: str = ""

    def __str__(self) -> str:
        return f"{self.stack} layer {self.number} {self.sublayers}".rstrip()


class Layer(nn.ModuleDict):
    """Named sub-layers that act in turn; a list in place of a sub-layer holds copies with separate parameters.

    Stage i uses copy i modulo the number of copies (ODE Transformer 2022, footnote 4).
    """

    def __init__(self, sublayers: Mapping[str, nn.Module]) -> None:
        super().__init__(sublayers)
        self.place()

    @property
    def kinds(self) -> dict[str, SubLayerKind]:
        """Kind of each sub-layer by name, in the order in which they act."""
        return {name: copies_of(sublayer)[0].kind for name, sublayer in self.items()}

    def place(
        self, index: int = 0, blocks: Sequence[Group] = (), first_block: int = 0, function: str = "increment"
    ) -> int:
        """Tell the layer its place in a stack.

        :param index: number of the layer, from 0 on
        :param blocks: from ``DepthChoice.grouping``; by default all sub-layers form one block
        :param first_block: number of its first block among the stepped ones of the stack
        :param function: one of ``FUNCTIONS``, or ``attentions``
        :returns: the number of the next layer's first block
        """
        self.index, self.first_block, self.function = index, first_block, function
        self.blocks: Sequence[Group] = blocks or [(tuple(self), True)]
        for name, sublayer in self.items():
            for number, copy in enumerate(copies_of(sublayer)):
                copy.layer, copy.name, copy.copy = index, name, number
        return first_block + sum(is_stepped for _, is_stepped in self.blocks)

    def forward(self, y: Tensor, state: Any, context: Context, scheme: Scheme) -> tuple[Tensor, Any]:
        """Step the blocks of the layer in turn.

        :param y: [.., dim]
        :param state: of the scheme
        :returns: the next y and state
        """
        number = self.first_block
        for names, is_stepped in self.blocks:
            if not is_stepped:
                y = self.output(y, 0, context, names)
                continue
            function = {"increment": self.increment, "layer-output": self.output, "attentions": self.attention}
            y, state = scheme(partial(function[self.function], context=context, names=names), y, state, number)
            number += 1
        return y, state

    def increment(self, y: Tensor, stage: int, context: Context, names: Sequence[str]) -> Tensor:
        """Return what a block adds, Σ a_i with a_i = f_i(y + a_1 + … + a_{i−1}): no difference of large numbers."""
        total = self._copy(names[0], stage)(y, context, stage)
        for name in names[1:]:
            total = total + self._copy(name, stage)(y + total, context, stage)
        return total

    def output(self, y: Tensor, stage: int, context: Context, names: Sequence[str]) -> Tensor:
        """Return the output of a block with its residuals."""
        for name in names:
            y = self._copy(name, stage).output(y, context, stage)
        return y

    def attention(self, y: Tensor, number: int, context: Context, names: Sequence[str]) -> Tensor:
        """Return what attention ``number`` adds; the stages of a depth-wise LSTM are the attentions of a layer."""
        return self._copy(names[number], 0)(y, context, 0)

    def _copy(self, name: str, stage: int) -> SubLayer:
        copies = copies_of(self[name])
        return copies[stage % len(copies)]


def copies_of(sublayer: nn.Module) -> list[SubLayer]:
    """Return the copies of a sub-layer, which are one if all stages share its parameters."""
    copies: list[Any] = list(sublayer) if isinstance(sublayer, nn.ModuleList) else [sublayer]
    return copies
