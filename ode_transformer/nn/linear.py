"""Linear map with the initialisation of our layers."""

from torch import nn


def linear(input_dim: int, dim: int) -> nn.Linear:
    """Build a linear map, [.., input_dim] -> [.., dim], with Xavier's weights (Glorot and Bengio 2010) and bias 0."""
    module = nn.Linear(input_dim, dim)
    nn.init.xavier_uniform_(module.weight)
    nn.init.zeros_(module.bias)
    return module
