"""Operator splitting: solves y' = F(y) + G(y) by the flows of the two fields in turn.

    Lie–Trotter       y'' = Φ^G_h(Φ^F_h(y))                       Macaron Net (Lu et al. 2019) Eqs. 6 and 7
    Strang–Marchuk    y'' = Φ^G_{h/2}(Φ^F_h(Φ^G_{h/2}(y)))        Macaron Net Eqs. 14-16

Φ^F_h is the flow of F over the time h. In a Transformer F, the diffusion, is attention, in which positions act on each
other; G, the convection, is the feed-forward network; and each flow is a single Euler step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

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
