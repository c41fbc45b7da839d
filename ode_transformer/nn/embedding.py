"""Embeddings of words and positions.

    y_0 = dropout(√d · word + position)            sinusoidal, learned or no positions

A text's positions count from ``PADDING`` + 1 on, as in fairseq, so that parameters trained there mean the same here;
padding has the zero vector. Axes: B batch, T positions, C channels.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.sizes import PADDING


def word_embedding(words: int, dim: int) -> nn.Embedding:
    """Build the embeddings of words, [words, dim]; that of the padding is zero."""
    embedding = nn.Embedding(words, dim, padding_idx=PADDING)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    nn.init.zeros_(embedding.weight[PADDING])
    return embedding


def build_positions(kind: str, length: int, dim: int) -> "SinusoidalPositions | LearnedPositions | None":
    """Build the absolute positions of texts of up to ``length`` tokens; None for ``none``."""
    if kind == "none":
        return None
    return LearnedPositions(length, dim) if kind == "learned" else SinusoidalPositions(length, dim)


def position_numbers(tokens: Tensor) -> Tensor:
    """Return the number of each position in its text, counted from ``PADDING`` + 1 on, [B, T]."""
    real = tokens.ne(PADDING).int()
    return (real.cumsum(dim=1).type_as(real) * real).long() + PADDING


def sinusoids(numbers: int, dim: int) -> Tensor:
    """Return the table of sinusoids, [numbers, dim]: sines of all frequencies, then cosines."""
    half = dim // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / (half - 1)))
    angles = torch.arange(numbers, dtype=torch.float)[:, None] * frequencies[None]
    table = torch.cat([angles.sin(), angles.cos(), torch.zeros(numbers, dim % 2)], dim=1)
    table[PADDING] = 0
    return table


class SinusoidalPositions(nn.Module):
    """Sinusoids of positions (Vaswani et al. 2017, 3.5), which are no parameters.

    :param length: tokens for which a table is kept; longer texts compute theirs
    """

    max_positions = 100_000

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.length, self.dim = length, dim
        self.fill()

    def fill(self) -> None:
        """Compute the table, again for a model that was built without numbers."""
        self.register_buffer("weights", sinusoids(self.length + PADDING + 1, self.dim), persistent=False)

    def rows(self, count: int) -> Tensor:
        """Return the vectors of the first ``count`` positions of a text, [count, C]."""
        return self._table(count)[PADDING + 1 : PADDING + 1 + count]

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors of the positions of texts, [B, T] -> [B, T, C]."""
        numbers = position_numbers(tokens).flatten()
        return self._table(tokens.size(1)).index_select(0, numbers).view(*tokens.shape, -1).detach()

    def _table(self, count: int) -> Tensor:
        """Return the table, or a longer one if a text has more positions."""
        table: Any = self.weights
        numbers = count + PADDING + 1
        return table if numbers <= len(table) else sinusoids(numbers, self.dim).to(table)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for name in ("weights", "_float_tensor"):  # of older checkpoints
            state_dict.pop(prefix + name, None)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class LearnedPositions(nn.Embedding):
    """Learned vectors of positions.

    :param length: tokens of the longest text
    """

    def __init__(self, length: int, dim: int) -> None:
        super().__init__(length + PADDING + 1, dim, PADDING)
        nn.init.normal_(self.weight, std=dim**-0.5)
        nn.init.zeros_(self.weight[PADDING])
        self.max_positions = length

    def rows(self, count: int) -> Tensor:
        """Return the vectors of the first ``count`` positions of a text, [count, C]."""
        return self.weight[PADDING + 1 : PADDING + 1 + count]

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors of the positions of texts, [B, T] -> [B, T, C]."""
        return super().forward(position_numbers(tokens))


class EmbeddingDropout(Dropout):
    """Dropout by PyTorch's own random numbers: embeddings are small, and published figures were measured with these."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.active, training=True) if self.active else x
