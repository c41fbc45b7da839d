"""Operator splitting: solves y' = F(y) + G(y) by the flows of the two fields in turn.

    Lie–Trotter       y'' = Φ^G_h(Φ^F_h(y))                       Macaron Net (Lu et al. 2019) Eqs. 6 and 7
    Strang–Marchuk    y'' = Φ^G_{h/2}(Φ^F_h(Φ^G_{h/2}(y)))        Macaron Net Eqs. 14-16

Φ^F_h is the flow of F over the time h; with exact flows the orders are 1 and 2. In a Transformer F, the diffusion, is
attention, in which positions act on each other; G, the convection, is the feed-forward network; and each flow is a
single Euler step.
"""

from collections.abc import Callable, Mapping

from torch import Tensor

# Flow of a vector field: (y, time h) -> solution after h.
Flow = Callable[[Tensor, float], Tensor]

# The field of each flow, diffusion or convection, and its fraction of the step.
Splitting = tuple[tuple[str, float], ...]

SPLITTINGS: dict[str, Splitting] = {
    # Trotter 1959; a Transformer layer
    "lie-trotter": (("diffusion", 1.0), ("convection", 1.0)),
    # Strang 1968, Marchuk 1968; a Macaron layer, Lu et al. 2019
    "strang": (("convection", 0.5), ("diffusion", 1.0), ("convection", 0.5)),
}


def split_step(flows: Mapping[str, Flow], splitting: Splitting, y: Tensor, step_size: float = 1.0) -> Tensor:
    """Take one step of a splitting.

    :param flows: flows of ``diffusion`` and ``convection``, exact or by a numerical scheme
    :param y: start of the step, any shape
    :param step_size: h
    """
    for name, fraction in splitting:
        y = flows[name](y, fraction * step_size)
    return y
