"""Operator splitting: several vector fields, or several maps, that act in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ode_transformer.numerics.runge_kutta import VectorField


def sequential_increment(fields: Sequence[VectorField], y: Tensor) -> Tensor:
    """What one Euler step along each field in turn adds to ``y`` (a Lie–Trotter splitting).

    F(y) = a_1 + a_2 + …,  a_i = f_i(y + a_1 + … + a_{i−1}),

    computed as a sum of the a_i, never as the difference of two large numbers. With f_1 = self-attention and
    f_2 = feed-forward network, y + F(y) is a pre-norm Transformer layer.
    """
    total = fields[0](y)
    for field in fields[1:]:
        total = total + field(y + total)
    return total


def composed(maps: Sequence[Callable[[Tensor], Tensor]], y: Tensor) -> Tensor:
    """Φ_n(… Φ_2(Φ_1(y)))."""
    for each in maps:
        y = each(y)
    return y
