"""Numerical schemes for y' = f(y): PyTorch only, no knowledge of Transformers or fairseq."""

from ode_transformer.numerics.coefficients import (
    COEFFICIENTS,
    GATE_SUMS,
    GATES,
    LEARNED,
    build_coefficients,
    coefficients_refusal,
)
from ode_transformer.numerics.depth import (
    Block,
    BlockwiseScheme,
    DepthScheme,
    DepthState,
    RungeKutta,
    StepObserver,
    WeighingScheme,
)
from ode_transformer.numerics.predictor_corrector import PredictorCorrector, mean_weights
from ode_transformer.numerics.recurrences import (
    RECURRENCES,
    Recurrence,
    RecurrenceScheme,
    register_recurrence,
)
from ode_transformer.numerics.reference import Reference, solve_to_tolerance
from ode_transformer.numerics.runge_kutta import (
    VectorField,
    Weight,
    add_weighted,
    runge_kutta_step,
    runge_kutta_steps,
    stage_increments,
    weighted_sum,
)
from ode_transformer.numerics.splitting import SPLITTINGS, Flow, Splitting, composed, sequential_increment, split_step
from ode_transformer.numerics.tableau import (
    TABLEAUS,
    ButcherTableau,
    get_tableau,
    register_tableau,
    reserve_scheme_name,
    tableau_names,
)

__all__ = [
    "COEFFICIENTS",
    "GATES",
    "GATE_SUMS",
    "LEARNED",
    "RECURRENCES",
    "SPLITTINGS",
    "TABLEAUS",
    "Block",
    "BlockwiseScheme",
    "ButcherTableau",
    "DepthScheme",
    "DepthState",
    "Flow",
    "PredictorCorrector",
    "Recurrence",
    "RecurrenceScheme",
    "Reference",
    "RungeKutta",
    "Splitting",
    "StepObserver",
    "VectorField",
    "WeighingScheme",
    "Weight",
    "add_weighted",
    "weighted_sum",
    "build_coefficients",
    "coefficients_refusal",
    "composed",
    "get_tableau",
    "mean_weights",
    "register_recurrence",
    "register_tableau",
    "reserve_scheme_name",
    "runge_kutta_step",
    "runge_kutta_steps",
    "sequential_increment",
    "solve_to_tolerance",
    "split_step",
    "stage_increments",
    "tableau_names",
]
