"""Operator splitting: solves y' = F(y) + G(y) by the flows of the two fields in turn.

    Lie–Trotter       y'' = Φ^G_h(Φ^F_h(y))                       Macaron Net (Lu et al. 2019) Eqs. 6 and 7
    Strang–Marchuk    y'' = Φ^G_{h/2}(Φ^F_h(Φ^G_{h/2}(y)))        Macaron Net Eqs. 14-16

Φ^F_h is the flow of F over the time h. In a Transformer F, the diffusion, is attention, in which positions act on each
other; G, the convection, is the feed-forward network; and each flow is a single Euler step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ode_transformer.numerics.runge_kutta import VectorField

# Flow of a vector field: (y, time h) -> solution after h.
Flow = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Splitting:
    """Splitting scheme.

    :param name: value of ``--layer-splitting``
    :param order: global order with exact flows
    :param parts: the field of each flow, ``diffusion`` or ``convection``, and its fraction of the step
    """

    name: str
    order: int
    parts: tuple[tuple[str, float], ...]
    source: str


SPLITTINGS = {
    splitting.name: splitting
    for splitting in (
        Splitting("lie-trotter", 1, (("diffusion", 1.0), ("convection", 1.0)), "Trotter 1959; a Transformer layer"),
        Splitting(
            "strang",
            2,
            (("convection", 0.5), ("diffusion", 1.0), ("convection", 0.5)),
            "Strang 1968, Marchuk 1968; a Macaron layer, Lu et al. 2019",
        ),
    )
}


def split_step(flows: Mapping[str, Flow], splitting: Splitting, y: Tensor, step_size: float = 1.0) -> Tensor:
    """Take one step of a splitting.

    :param flows: flows of ``diffusion`` and ``convection``, exact or by a numerical scheme
    :param y: start of the step, any shape
    :param step_size: h
    """
    for name, fraction in splitting.parts:
        y = flows[name](y, fraction * step_size)
    return y


def sequential_increment(fields: Sequence[VectorField], y: Tensor) -> Tensor:
    """Return the sum of the increments of one Euler step along each field in turn (a Lie–Trotter splitting).

    F(y) = a_1 + a_2 + …,  a_i = f_i(y + a_1 + … + a_{i−1}),

    a sum of the a_i, and no difference of two large numbers. With f_1 = self-attention and f_2 = feed-forward network,
    y + F(y) is a pre-norm Transformer layer.
    """
    total = fields[0](y)
    for field in fields[1:]:
        total = total + field(y + total)
    return total


def composed(maps: Sequence[Callable[[Tensor], Tensor]], y: Tensor) -> Tensor:
    """Return Φ_n(… Φ_2(Φ_1(y)))."""
    for phi in maps:
        y = phi(y)
    return y
