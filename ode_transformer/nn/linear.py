"""A linear map as all of our layers start it."""

from torch import nn


def linear(input_dim: int, dim: int) -> nn.Linear:
    """[..., input_dim] -> [..., dim], Xavier's weights (Glorot and Bengio 2010), no bias yet."""
    made = nn.Linear(input_dim, dim)
    nn.init.xavier_uniform_(made.weight)
    nn.init.zeros_(made.bias)
    return made
