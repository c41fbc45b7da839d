"""Butcher tableaus: an explicit Runge–Kutta scheme is data.

    k_i = f(y + h Σ_{j<i} a_ij k_j)        stages i = 1 … s
    y'  = y + h Σ_i b_i k_i

A scheme is one entry of ``TABLEAUS``, or is registered by user code with :func:`register_tableau`. ``a`` is written
row by row and without its zeros on and above the diagonal, so that every tableau is explicit.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from ode_transformer.numerics.order_conditions import order_of_tableau


@dataclass(frozen=True)
class ButcherTableau:
    """One explicit Runge–Kutta scheme, checked when it is built.

    :param name: value of the scheme flags, a single word
    :param order: global order of accuracy; 0 for a rule that has the form of a step but does not solve y' = f(y), and
        need not satisfy Σ b = 1
    :param a: stage weights; row i has i entries
    :param b: weights of the increments
    :param c: nodes; c_i = Σ_j a_ij
    :raises ValueError: if the shapes do not fit, a row of ``a`` does not sum to its node, or the order is positive and
        Σ b ≠ 1 or another one
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
            if len(row) != i or not math.isclose(sum(row), node, abs_tol=1e-12):
                raise ValueError(f"tableau {self.name}: row {i + 1} of a must have {i} entries that sum to {node}")
        if self.order > 0 and not math.isclose(sum(self.b), 1.0, abs_tol=1e-12):
            raise ValueError(f"tableau {self.name}: the weights b sum to {sum(self.b)}, not to 1")
        if self.order > 0 and (order := order_of_tableau(self.a, self.b)) != self.order:
            raise ValueError(f"tableau {self.name}: its order is {order}, not {self.order}")

    @property
    def stages(self) -> int:
        """Number of evaluations of the vector field in one step."""
        return len(self.b)


def _read_tableau(name: str, order: int, a: str, b: str, source: str, aliases: tuple[str, ...] = ()) -> ButcherTableau:
    """Read a tableau as it is printed: rows of ``a`` from the second on, divided by ';'; the nodes are their sums."""
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
    _read_tableau("euler", 1, "", "1", "Euler 1768; the residual block, ODE Transformer (2022) Eq. 1"),
    _read_tableau("midpoint", 2, "1/2", "0 1", "Runge 1895"),
    _read_tableau("heun", 2, "1", "1/2 1/2", "Heun 1900, improved Euler; ODE Transformer (2022) Eqs. 12-14", ("rk2",)),
    _read_tableau("ralston", 2, "2/3", "1/4 3/4", "Ralston 1962"),
    _read_tableau("kutta3", 3, "1/2; -1 2", "1/6 4/6 1/6", "Kutta 1901", ("rk3",)),
    _read_tableau("ssprk3", 3, "1; 1/4 1/4", "1/6 1/6 4/6", "Shu and Osher 1988"),
    _read_tableau(
        "rk4",
        4,
        "1/2; 0 1/2; 0 0 1",
        "1/6 2/6 2/6 1/6",
        "Kutta 1901, the classical one; ODE Transformer (2022) Eqs. 15-19",
    ),
    _read_tableau("rk38", 4, "1/3; -1/3 1; 1 -1 1", "1/8 3/8 3/8 1/8", "Kutta 1901, the 3/8 rule"),
    # The authors' code evaluates the third stage at y + k2 where Kutta's rule says y - k1 + 2 k2, which costs an order.
    _read_tableau("rk3-released", 2, "1/2; 0 1", "1/6 4/6 1/6", "released ODE Transformer code; for parity only"),
    # Shorter Euler steps of one layer: what a scheme of higher order gains by its order, these do not gain.
    _read_tableau("euler2", 1, "1/2", "1/2 1/2", "ours: two Euler steps of 1/2, as many evaluations as rk2"),
    _read_tableau(
        "euler4",
        1,
        "1/4; 1/4 1/4; 1/4 1/4 1/4",
        "1/4 1/4 1/4 1/4",
        "ours: four Euler steps of 1/4, as many evaluations as rk4",
    ),
    # y + F(y) repeatedly: as many Euler steps of full size as there are stages, all with one layer.
    _read_tableau(
        "repeat", 0, "1", "1 1", "plain weight sharing; ODE Transformer (2022) Table 10, first row", ("repeat2",)
    ),
    _read_tableau("repeat4", 0, "1; 1 1; 1 1 1", "1 1 1 1", "plain weight sharing, as many evaluations as rk4"),
)

_NAMES: set[str] = set()  # of all schemes
_BY_NAME: dict[str, ButcherTableau] = {}


def reserve_scheme_name(*names: str) -> None:
    """Keep the names of a scheme, so that no other scheme has one.

    :raises ValueError: if one is not a single word, as which checkpoints write it, or is another scheme's
    """
    for name in names:
        if name.split() != [name]:
            raise ValueError(f"{name!r}: the name of a scheme is a single word")
        if name in _NAMES or names.count(name) > 1:
            raise ValueError(f"the scheme name {name!r} is already in use")
    _NAMES.update(names)


def register_tableau(tableau: ButcherTableau) -> ButcherTableau:
    """Add a scheme: from now on its name and aliases are values of the scheme flags.

    :returns: ``tableau``
    :raises ValueError: :func:`reserve_scheme_name` raises it
    """
    names = (tableau.name, *tableau.aliases)
    reserve_scheme_name(*names)
    _BY_NAME.update(dict.fromkeys(names, tableau))
    return tableau


for _tableau in TABLEAUS:
    register_tableau(_tableau)


def tableau_names() -> tuple[str, ...]:
    """Return every name that :func:`get_tableau` accepts, with aliases and registered schemes."""
    return tuple(_BY_NAME)


def get_tableau(name: str) -> ButcherTableau:
    """Return the tableau called ``name``.

    :raises ValueError: if there is none; the message lists the names
    """
    if name not in _BY_NAME:
        raise ValueError(f"unknown scheme {name!r}; known are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
