"""Depth schemes other than Runge–Kutta: recurrences in the layers' outputs y_t and their increments F(y_t).

    leapfrog              y_{t+1} = y_{t−1} + 2 F(y_t)
    multistep             y_{t+1} = k_t y_t + (1 − k_t) y_{t−1} + F(y_t)
    dlcl-increments       y_{t+1} = y_0 + Σ_{l ≤ t} W[t, l] F(y_l)
    polynet               y_{t+1} = y_t + F(y_t) + F(F(y_t))
    multistep-released    y_{t+1} = k_t ∗ y_{t−1} + u + f(u),   u = LN_t((1 − k_t) ∗ y_t)
    polynet-released      polynet for each sub-layer

The first four are ODE Transformer (2022), Table 7 (2021, Table 4); the last two are those of the released code. In
``multistep-released``, f is a sub-layer without its normalisation. t counts blocks: layers, or sub-layers if these are
stepped one by one. Schemes that read y_{t−1} have it as their state. As there is no y_{−1}, they begin with a block of
Euler's method, y_1 = y_0 + F(y_0).

As solvers of y' = F(y), leapfrog has order 2, multistep order 1 if all k are 1, and DLCL order 1 if all W are 1; these
two start there, as Euler's method. With other weights they do not converge to its solution, nor do the last three:
PolyNet tends to y' = F(y) + F(0). A new scheme is a class and an entry of ``RECURRENCES``; the equations of those that
predict and correct are in :mod:`ode_transformer.numerics.predictor_corrector`, those with momentum in
:mod:`ode_transformer.numerics.momentum`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ode_transformer.numerics.momentum import Momentum
from ode_transformer.numerics.predictor_corrector import IncrementCorrection, OutputCorrection
from ode_transformer.numerics.runge_kutta import add_weighted, weighted_sum
from ode_transformer.numerics.scheme import Field, Scheme
from ode_transformer.numerics.tableau import ButcherTableau, get_tableau, reserve_scheme_name


class Leapfrog(Scheme):
    """y_{t+1} = y_{t−1} + 2 F(y_t)."""

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()

    def forward(self, f: Field, y: Tensor, state: Tensor | None, block: int) -> tuple[Tensor, Tensor]:
        return y + f(y, 0) if state is None else add_weighted(state, (2.0,), (f(y, 0),)), y


class Multistep(Scheme):
    """y_{t+1} = k_t y_t + (1 − k_t) y_{t−1} + F(y_t), a learned number for each block, all 1 at the start.

    The first block has a number without effect: with y_{−1} = y_0 the equation is Euler's method for every k.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.ones(blocks))

    def forward(self, f: Field, y: Tensor, state: Tensor | None, block: int) -> tuple[Tensor, Tensor]:
        k, previous = self.k[block], y if state is None else state
        return weighted_sum((k, 1 - k, 1.0), (y, previous, f(y, 0))), y

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return (self.k[block],) if block else ()


class MultistepReleased(Scheme):
    """y_{t+1} = k_t ∗ y_{t−1} + u + f(u), u = LN_t((1 − k_t) ∗ y_t), k_t learned from U(−1, 0) in each channel.

    The first sub-layer is the plain pre-norm residual one, y_1 = y_0 + f(LN_0(y_0)), and has no k.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.empty(max(blocks - 1, 0), dim).uniform_(-1, 0))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))

    def forward(self, f: Field, y: Tensor, state: Tensor | None, block: int) -> tuple[Tensor, Tensor]:
        if state is None:
            return y + f(self.norms[0](y), 0), y
        k = self.k[block - 1]
        u = self.norms[block](torch.addcmul(y, k, y, value=-1))
        return add_weighted(u, (1.0, k), (f(u, 0), state)), y

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return (self.k[block - 1],) if block else ()


class IncrementHistory(NamedTuple):
    """State of ``dlcl-increments``: y_0 and F(y_0) … F(y_t)."""

    history: tuple[Tensor, ...]


class DLCLIncrements(Scheme):
    """y_{t+1} = y_0 + Σ_{l ≤ t} W[t, l] F(y_l), all W 1 at the start.

    The table writes W_l. With one weight for each increment the sum is y_{t+1} = y_t + W_t F(y_t), a one-step scheme;
    Wang et al. (2019), whose method the row names, learn a weight for each pair (t, l), and so does this class.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(blocks, blocks).tril())  # only the lower triangle is used

    def start(self, y0: Tensor) -> IncrementHistory:
        return IncrementHistory((y0,))

    def forward(self, f: Field, y: Tensor, state: IncrementHistory, block: int) -> tuple[Tensor, IncrementHistory]:
        return self.append(f(y, 0), state, block)

    def append(self, output: Tensor, state: IncrementHistory, block: int) -> tuple[Tensor, IncrementHistory]:
        """Return y and the state after a block that has returned ``output``, its increment."""
        y0, *increments = history = (*state.history, output)
        return add_weighted(y0, self.weights(block), increments), IncrementHistory(history)

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return self.weight[block, : block + 1].unbind()


class PolyNet(Scheme):
    """y_{t+1} = y_t + F(y_t) + F(F(y_t)), a one-step scheme; no tableau describes F of an increment."""

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()

    def forward(self, f: Field, y: Tensor, state: None, block: int) -> tuple[Tensor, None]:
        increment = f(y, 0)
        return add_weighted(y, (1.0, 1.0), (increment, f(increment, 1))), state


@dataclass(frozen=True)
class Recurrence:
    """Entry of ``RECURRENCES``.

    :param name: value of the scheme flags
    :param order: as for a tableau, with the weights at the start of training
    :param build: builds the scheme from a number of blocks and a width; as keywords, a predictor–corrector scheme takes
        the coefficients of its stages, momentum ``normalize_step``
    :param stages: number of evaluations of the vector field in one block
    :param remembers: the scheme reads earlier states than y_t
    :param trained: the equation has learned weights
    :param each_sublayer: the blocks are sub-layers
    :param normalizes: the scheme applies the layer normalisations itself, so its fields have none
    :param normalizes_step: what a block adds can be normalised
    :param predictor: tableau whose stages predict, in a predictor–corrector scheme
    :param weighs_stages: coefficients weigh the stages of the predictor
    :param least_blocks: number of blocks from which on it reads earlier ones; with fewer it is Euler's method
    """

    name: str
    order: int
    build: Callable[..., Scheme]
    source: str
    stages: int = 1
    remembers: bool = True
    trained: bool = False
    each_sublayer: bool = False
    normalizes: bool = False
    normalizes_step: bool = False
    predictor: ButcherTableau | None = None
    weighs_stages: bool = True
    least_blocks: int = 1


def _correction(
    name: str, order: int, predictor: str, iterations: int, source: str, beta: tuple[float, ...] = ()
) -> Recurrence:
    """Return the entry of a predictor–corrector scheme: in increment form, or in output form if it has no β."""
    tableau = get_tableau(predictor)
    build = partial(IncrementCorrection, beta=beta) if beta else OutputCorrection
    return Recurrence(
        name,
        order,
        partial(build, predictor=tableau, iterations=iterations),
        source,
        stages=tableau.stages + iterations,
        remembers=len(beta) not in (1, 2),
        trained=not beta,
        predictor=tableau,
        weighs_stages=bool(beta) or tableau.stages > 1,  # the output form takes the output of one stage as it is
    )


def _momentum(name: str, looks_ahead: bool, source: str) -> Recurrence:
    """Return the entry of a scheme with momentum."""
    build = partial(Momentum, looks_ahead=looks_ahead)
    return Recurrence(name, 0, build, source, trained=True, normalizes_step=True, least_blocks=2)


_TABLE_7 = "ODE Transformer (2022) Table 7"
_RELEASED = "released ODE Transformer code"

RECURRENCES: dict[str, Recurrence] = {}


def register_recurrence(recurrence: Recurrence) -> None:
    """Add a scheme: from now on its name is a value of the scheme flags.

    :raises ValueError: if another scheme has its name, or it has another order than it states
    """
    measured = measured_order(recurrence) if recurrence.order > 0 else None
    if measured is not None and abs(measured - recurrence.order) > 0.3:
        raise ValueError(f"scheme {recurrence.name}: its measured order is {measured:.1f}, not {recurrence.order}")
    _add(recurrence)


def _add(recurrence: Recurrence) -> None:
    reserve_scheme_name(recurrence.name)
    RECURRENCES[recurrence.name] = recurrence


def measured_order(recurrence: Recurrence) -> float | None:
    """Return the order of a recurrence on y' = y² cos t, with the weights at the start of training.

    None where rounding hides it.
    """
    coarse, fine = (_error_after(recurrence, blocks) for blocks in (64, 128))
    return math.log2(coarse / fine) if fine > 1e-13 else None


def _error_after(recurrence: Recurrence, blocks: int) -> float:
    """Return the error at t = 1; the solution is y = 1 / (1 / y_0 − sin t)."""

    def field(y: Tensor, stage: int) -> Tensor:
        value, time = y
        return torch.stack([value**2 * torch.cos(time), torch.ones_like(time)]) / blocks

    y = torch.tensor([0.5, 0.0], dtype=torch.float64)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        scheme = recurrence.build(blocks, len(y)).double()
        state = scheme.start(y)
        for block in range(blocks):
            y, state = scheme(field, y, state, block)
    return abs(float(y[0]) - 1 / (2 - math.sin(1)))


for _recurrence in (
    Recurrence("leapfrog", 2, Leapfrog, f"{_TABLE_7}; He et al. 2019", least_blocks=2),
    Recurrence("multistep", 1, Multistep, f"{_TABLE_7}; Lu et al. 2018", trained=True, least_blocks=2),
    Recurrence("dlcl-increments", 1, DLCLIncrements, f"{_TABLE_7}; Wang et al. 2019", trained=True),
    Recurrence("polynet", 0, PolyNet, f"{_TABLE_7}; Zhang et al. 2017", stages=2, remembers=False),
    Recurrence(
        "multistep-released", 0, MultistepReleased, _RELEASED, trained=True, each_sublayer=True, normalizes=True
    ),
    _momentum("nesterov", True, "Zimin et al. 2026"),
    _momentum("heavy-ball", False, "Sander et al. 2021"),
    Recurrence("polynet-released", 0, PolyNet, _RELEASED, stages=2, remembers=False, each_sublayer=True),
    _correction("pcformer2", 0, "heun", 1, "Li et al. 2024 and its released code"),
    _correction("pcformer4", 0, "rk4", 1, "Li et al. 2024 and its released code"),
    _correction("iiet", 0, "euler", 3, "Liu et al. 2025 and its released code"),
    _correction("implicit-euler", 1, "euler", 3, "the increment form of iiet", (1.0,)),
    _correction("heun-moulton", 2, "heun", 1, "the increment form of pcformer2", (1 / 2, 1 / 2)),
    _correction("rk4-moulton", 4, "rk4", 1, "the increment form of pcformer4", (9 / 24, 19 / 24, -5 / 24, 1 / 24)),
):
    _add(_recurrence)  # the tests measure their orders
