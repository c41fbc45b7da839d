"""Numerical schemes for y' = f(y): PyTorch only, no knowledge of Transformers or fairseq."""

from ode_transformer.numerics.coefficients import (
    COEFFICIENTS,
    GATE_STARTS,
    GATE_SUMS,
    GATES,
    LEARNED,
    PROJECTED,
    STEP_LENGTHS,
    build_coefficients,
)
from ode_transformer.numerics.predictor_corrector import mean_weights
from ode_transformer.numerics.recurrences import RECURRENCES, Recurrence, register_recurrence
from ode_transformer.numerics.reference import Reference, solve_to_tolerance
from ode_transformer.numerics.runge_kutta import (
    RungeKutta,
    VectorField,
    Weight,
    add_weighted,
    runge_kutta_steps,
    weighted_sum,
)
from ode_transformer.numerics.scheme import Field, Scheme, module_of_block
from ode_transformer.numerics.splitting import SPLITTINGS, Flow, Splitting, split_step
from ode_transformer.numerics.tableau import (
    TABLEAUS,
    ButcherTableau,
    get_tableau,
    register_tableau,
    reserve_scheme_name,
    tableau_names,
)
