"""Butcher tableaus: an explicit Runge–Kutta scheme is data.

    k_i = f(y + h Σ_{j<i} a_ij k_j)        stages i = 1 … s
    y'  = y + h Σ_i b_i k_i

A scheme is added by one entry of ``TABLEAUS``; nothing else has to know of it. ``a`` is written row by row
and without its zeros on and above the diagonal, so that every tableau that can be written is explicit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class ButcherTableau:
    """One explicit Runge–Kutta scheme, checked when it is built.

    :param name: what users call it
    :param order: global order of accuracy, proved by measurement in the tests; 0 for a rule that borrows the form of a
        step but does not solve y' = f(y), and alone may break Σ b = 1
    :param a: stage weights; row i has i entries
    :param b: weights of the increments
    :param c: nodes; c_i = Σ_j a_ij
    :param source: where the scheme comes from
    :param aliases: further names
    :raises ValueError: if the shapes do not fit, a row of ``a`` does not sum to its node, or Σ b ≠ 1 where it has to
    """

    name: str
    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    source: str
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.a) == len(self.b) == len(self.c):
            raise ValueError(f"tableau {self.name}: a, b and c must have one entry for each stage")
        for i, (row, node) in enumerate(zip(self.a, self.c, strict=True)):
            if len(row) != i:
                raise ValueError(f"tableau {self.name}: row {i + 1} of a must have {i} entries, not {len(row)}")
            if not math.isclose(sum(row), node, abs_tol=1e-12):
                raise ValueError(f"tableau {self.name}: row {i + 1} of a sums to {sum(row)}, its node is {node}")
        if self.order > 0 and not math.isclose(sum(self.b), 1.0, abs_tol=1e-12):
            raise ValueError(f"tableau {self.name}: the weights b sum to {sum(self.b)}, not to 1")

    @property
    def stages(self) -> int:
        """How often one step evaluates the vector field."""
        return len(self.b)


def _tableau(name: str, order: int, a: str, b: str, source: str, aliases: tuple[str, ...] = ()) -> ButcherTableau:
    """Reads a tableau as it is printed: rows of ``a`` below the first divided by ';', the nodes are their sums."""
    rows = [[], *([Fraction(entry) for entry in row.split()] for row in a.split(";") if row.strip())]
    return ButcherTableau(
        name=name,
        order=order,
        a=tuple(tuple(map(float, row)) for row in rows),
        b=tuple(float(Fraction(entry)) for entry in b.split()),
        c=tuple(float(sum(row, Fraction(0))) for row in rows),
        source=source,
        aliases=aliases,
    )


TABLEAUS: tuple[ButcherTableau, ...] = (
    _tableau("euler", 1, "", "1", "Euler 1768; the residual block, ODE Transformer (2022) Eq. 1"),
    _tableau("midpoint", 2, "1/2", "0 1", "Runge 1895"),
    _tableau("heun", 2, "1", "1/2 1/2", "Heun 1900, improved Euler; ODE Transformer (2022) Eqs. 12-14", ("rk2",)),
    _tableau("ralston", 2, "2/3", "1/4 3/4", "Ralston 1962"),
    _tableau("kutta3", 3, "1/2; -1 2", "1/6 4/6 1/6", "Kutta 1901", ("rk3",)),
    _tableau("ssprk3", 3, "1; 1/4 1/4", "1/6 1/6 4/6", "Shu and Osher 1988"),
    _tableau(
        "rk4",
        4,
        "1/2; 0 1/2; 0 0 1",
        "1/6 2/6 2/6 1/6",
        "Kutta 1901, the classical one; ODE Transformer (2022) Eqs. 15-19",
    ),
    _tableau("rk38", 4, "1/3; -1/3 1; 1 -1 1", "1/8 3/8 3/8 1/8", "Kutta 1901, the 3/8 rule"),
    # The authors' code evaluates the third stage at y + k2 where Kutta's rule says y - k1 + 2 k2, which costs an order.
    _tableau("rk3-released", 2, "1/2; 0 1", "1/6 4/6 1/6", "released ODE Transformer code; for parity only"),
    # y + F(y) again and again: as many Euler steps of full size as there are stages, all with one layer.
    _tableau("repeat", 0, "1", "1 1", "plain weight sharing; ODE Transformer (2022) Table 10, first row", ("repeat2",)),
    _tableau("repeat4", 0, "1; 1 1; 1 1 1", "1 1 1 1", "plain weight sharing, as many evaluations as rk4"),
)

_BY_NAME = {name: tableau for tableau in TABLEAUS for name in (tableau.name, *tableau.aliases)}


def scheme_names() -> tuple[str, ...]:
    """Every name that :func:`get_tableau` knows, aliases included."""
    return tuple(_BY_NAME)


def get_tableau(name: str) -> ButcherTableau:
    """The tableau called ``name``.

    :raises ValueError: if there is none; the message lists the known names
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ValueError(f"unknown scheme {name!r}; known are {', '.join(_BY_NAME)}") from None
