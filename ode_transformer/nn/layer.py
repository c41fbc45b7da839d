"""A layer as a vector field: its sub-layers, merged or one by one.

    merged layer   F(y) = a + FFN(LN(y + a)),   a = SAN(LN(y))     so that y + F(y) is the pre-norm layer

The papers step the merged layer, "SAN + FFN", without writing its F; here it is what the residual layer adds to y.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class LayerPlan:
    """Place of a layer in its stack, and how its blocks are stepped.

    :param index: number of the layer, from 0 on
    :param blocks: by default all sub-layers form one stepped block
    :param first_block: number of its first block among the stepped ones of the stack
    :param function: F of a step, one of ``FUNCTIONS``
    """

    index: int = 0
    blocks: tuple[Group, ...] = ()
    first_block: int = 0
    function: str = "increment"


class Layer(nn.ModuleDict):
    """Named sub-layers that act in turn; a list in place of a sub-layer holds copies with separate parameters.

    Stage i uses copy i modulo the number of copies (ODE Transformer 2022, footnote 4).
    """

    def __init__(self, sublayers: Mapping[str, nn.Module], plan: LayerPlan = LayerPlan()) -> None:
        super().__init__(sublayers)
        self.index, self.first_block, self.function = plan.index, plan.first_block, plan.function
        self.blocks: Sequence[Group] = plan.blocks or [(tuple(self), True)]
        for name, sublayer in self.items():
            for number, copy in enumerate(copies_of(sublayer)):
                copy.layer, copy.name, copy.copy = plan.index, name, number

    @property
    def kinds(self) -> dict[str, SubLayerKind]:
        """Kind of each sub-layer by name, in the order in which they act."""
        return {name: copies_of(sublayer)[0].kind for name, sublayer in self.items()}

    def forward(self, y: Tensor, state: Any, context: Context, scheme: Scheme) -> tuple[Tensor, Any]:
        """Step the blocks of the layer in turn.

        :param y: [.., dim]
        :param state: of the scheme
        :returns: the next y and state
        """
        number = self.first_block
        for names, is_stepped in self.blocks:
            if is_stepped:
                function = self.increment if self.function == "increment" else self.output
                y, state = scheme(partial(function, context=context, names=names), y, state, number)
                number += 1
            else:
                y = self.output(y, 0, context, names)
        return y, state

    def increment(self, y: Tensor, stage: int, context: Context, names: Sequence[str]) -> Tensor:
        """Return what a block adds, Σ a_i with a_i = f_i(y + a_1 + … + a_{i−1}): no difference of large numbers."""
        total = self.sublayer(names[0], stage)(y, context, stage)
        for name in names[1:]:
            total = total + self.sublayer(name, stage)(y + total, context, stage)
        return total

    def output(self, y: Tensor, stage: int, context: Context, names: Sequence[str]) -> Tensor:
        """Return the output of a block with its residuals."""
        for name in names:
            y = self.sublayer(name, stage).output(y, context, stage)
        return y

    def sublayer(self, name: str, stage: int) -> SubLayer:
        """Return the copy of a sub-layer that a stage evaluates."""
        copies = copies_of(self[name])
        return copies[stage % len(copies)]


class AttentionLayer(Layer):
    """Layer of a depth-wise LSTM, whose scheme reads the attentions of a layer one by one."""

    def forward(self, y: Tensor, state: Any, context: Context, scheme: Scheme) -> tuple[Tensor, Any]:
        """Step the layer; see :meth:`Layer.forward`."""
        ((names, _),) = self.blocks
        return scheme(partial(self.attention, context=context, names=names), y, state, self.first_block)

    def attention(self, y: Tensor, number: int, context: Context, names: Sequence[str]) -> Tensor:
        """Return what attention ``number`` adds."""
        return self.sublayer(names[number], 0)(y, context, 0)


def copies_of(sublayer: nn.Module) -> list[SubLayer]:
    """Return the copies of a sub-layer, which are one if all stages share its parameters."""
    copies: list[Any] = list(sublayer) if isinstance(sublayer, nn.ModuleList) else [sublayer]
    return copies
