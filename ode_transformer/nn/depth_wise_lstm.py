"""Depth-wise LSTM (Xu et al. 2020): an LSTM from layer to layer in place of residual connections.

    v = [x; o']                                                                        Eq. 2
    i = σ(LN(W_i v + b_i)),   f = σ(LN(W_f v + b_f)),   g = σ(LN(W_g v + b_g))         Eqs. 3-5, 7
    h = act(LN(W_h v + b_h))                                 hidden "linear"           Eq. 6
    h = W_2 act(LN(W_1 v + b_1)) + b_2                       hidden "ffn"              Eq. 8
    c = c' ∗ f + h ∗ i                                                                 Eq. 9
    o = c ∗ g                                                                          Eq. 10

o', c' are the output and the cell of the layer below, [.., dim] each; the LSTM does not run over time. x is the result
of the layer's attention, and h takes the place of its feed-forward network (3.2, 3.3):

    encoder   x = SelfAttention(o')
    decoder   s = SelfAttention(o'),  e = CrossAttention(s + o'),  x = s + e  or  x = W [s; e] + b

The first layer's o' is the embedded text. The paper states neither c' of the first layer nor dropout. Our decisions:
zero, as LSTMs start (or learned); dropout as in the feed-forward network that h replaces, on its inner layer and on h.

Later code of the authors' toolkit (hfxunlp/transformer) merges in another way, which are options here:

    merge "residual"              x = s + o' in the encoder, x = s + e + o' in the decoder
    merge "concat-unprojected"    v = [s; e; o'] in the decoder
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu

from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.linear import linear
from ode_transformer.nn.options import Choice, option
from ode_transformer.nn.sublayers import FeedForward
from ode_transformer.numerics import Field, Scheme, module_of_block, reserve_scheme_name

LSTM = "dlstm"  # value of the scheme flags
reserve_scheme_name(LSTM)


@dataclass(frozen=True)
class LSTMChoice(Choice):
    """Options of a depth-wise LSTM; the defaults are the paper's (Tables 2-4)."""

    flag_prefix: ClassVar[str] = "dlstm-"

    hidden: str = option(
        "ffn",
        "hidden computation by a network of two layers, or of one",
        values=lambda: ("ffn", "linear"),
        remembered=False,
    )
    merge: str = option(
        "add",
        "how the attentions of a layer become the LSTM's input",
        values=lambda: ("add", "concat", "concat-unprojected", "residual"),
        fixed=True,
    )
    share: str = option(
        "gates",
        "what layers share: the gates, gates and hidden state, or nothing",
        values=lambda: ("gates", "all", "none"),
        remembered=False,
    )
    first_cell: str = option(
        "zero", "the cell below the first layer", values=lambda: ("zero", "learned", "embedding"), fixed=True
    )
    forget_bias: float = option(
        0.0, "initial bias of the forget gate; above 0 the gate starts open", another=1.0, remembered=False
    )


@dataclass(frozen=True)
class HiddenSizes:
    """Sizes of the hidden computation, those of a Transformer's feed-forward network."""

    inner_dim: int = 2048
    activation: Callable[[Tensor], Tensor] = relu
    dropout: float = 0.0
    inner_dropout: float = 0.0


class Gates(nn.Module):
    """Gates i, f and g by one projection, each normalised; [.., input_dim] -> three tensors [.., dim]."""

    def __init__(self, dim: int, forget_bias: float, input_dim: int) -> None:
        super().__init__()
        self.projection = linear(input_dim, 3 * dim)
        for weight in self.projection.weight.detach().chunk(3):  # three matrices in one
            nn.init.xavier_uniform_(weight)
        self.weight = nn.Parameter(torch.ones(3, dim))
        self.bias = nn.Parameter(torch.tensor([0.0, forget_bias, 0.0])[:, None].repeat(1, dim))

    def forward(self, v: Tensor) -> tuple[Tensor, ...]:
        z = self.projection(v).unflatten(-1, self.weight.shape)  # [.., 3, dim]
        z = layer_norm(z, z.shape[-1:])
        return torch.addcmul(self.bias, z, self.weight).sigmoid().unbind(dim=-2)


def build_hidden(hidden: str, dim: int, sizes: HiddenSizes, input_dim: int) -> nn.Module:
    """Build the hidden computation h of v, [.., input_dim] -> [.., dim]: Eq. 8 or Eq. 6."""
    activation, dropout = sizes.activation, Dropout(sizes.dropout)
    if hidden == "linear":
        return nn.Sequential(OneLayer(dim, activation, input_dim), dropout)
    network = FeedForward(dim, sizes.inner_dim, activation, sizes.inner_dropout, input_dim, normalized=True)
    return nn.Sequential(network, dropout)


class OneLayer(nn.Module):
    """act(LN(W_h v + b_h)), [.., input_dim] -> [.., dim]."""

    def __init__(self, dim: int, activation: Callable[[Tensor], Tensor], input_dim: int) -> None:
        super().__init__()
        self.projection = linear(input_dim, dim)
        self.layer_norm = nn.LayerNorm(dim)
        self.activation = activation

    def forward(self, v: Tensor) -> Tensor:
        return self.activation(self.layer_norm(self.projection(v)))


class DepthWiseLSTM(Scheme):
    """Scheme that passes output and cell through layers of attentions; the state is the cell c [.., dim].

    :param attentions: number of attentions of a layer
    """

    def __init__(self, choice: LSTMChoice, layers: int, attentions: int, dim: int, sizes: HiddenSizes) -> None:
        super().__init__()
        gates = layers if choice.share == "none" else 1
        hidden = 1 if choice.share == "all" else layers
        self.attentions = attentions
        input_dim = dim * (1 + (attentions if choice.merge == "concat-unprojected" else 1))  # of v
        self.gates = nn.ModuleList(Gates(dim, choice.forget_bias, input_dim) for _ in range(gates))
        self.hidden = nn.ModuleList(build_hidden(choice.hidden, dim, sizes, input_dim) for _ in range(hidden))
        concatenate = choice.merge == "concat" and attentions > 1
        self.merges = nn.ModuleList(linear(attentions * dim, dim) for _ in range(layers)) if concatenate else None
        self.merge = choice.merge
        self.embedding_first = choice.first_cell == "embedding"
        self.first_cell = nn.Parameter(torch.zeros(dim)) if choice.first_cell == "learned" else None

    def start(self, y0: Tensor) -> Tensor:
        if self.embedding_first:
            return y0
        return torch.zeros_like(y0) if self.first_cell is None else self.first_cell.expand_as(y0)

    def forward(self, f: Field, y: Tensor, state: Tensor, block: int) -> tuple[Tensor, Tensor]:
        """Step one layer, of which f(y, i) is attention i."""
        attended: list[Tensor] = []
        for attention in range(self.attentions):
            attended.append(f(sum(attended, start=y), attention))
        v = torch.cat([*self._merge(attended, y, block), y], dim=-1)  # [.., n·dim]
        i, forget, g = module_of_block(self.gates, block)(v)  # [.., dim] each
        cell = torch.addcmul(state * forget, module_of_block(self.hidden, block)(v), i)
        return cell * g, cell

    def _merge(self, attended: Sequence[Tensor], y: Tensor, depth: int) -> Sequence[Tensor]:
        """Return the vectors of v beside o', [.., dim] each."""
        if self.merges is not None:
            return [self.merges[depth](torch.cat(tuple(attended), dim=-1))]
        if self.merge == "concat-unprojected":
            return attended
        total = sum(attended[1:], start=attended[0])
        return [total + y if self.merge == "residual" else total]
