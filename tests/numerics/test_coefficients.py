"""The weights of the increments, and what the papers claim of them."""

import math

import pytest
import torch

from ode_transformer.numerics import (
    COEFFICIENTS,
    GATE_SUMS,
    GATES,
    TABLEAUS,
    RungeKutta,
    build_coefficients,
    get_tableau,
    runge_kutta_step,
)

DIM = 6


def make(name: str, scheme: str = "rk2", gate_sum: str = "one") -> torch.nn.Module:
    return build_coefficients(name, get_tableau(scheme), DIM, gate_sum).double()


def f(y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y.roll(1, -1)) + 0.1 * y


def test_gate_of_two_stages_is_the_papers() -> None:
    gate = make("gate")
    torch.nn.init.normal_(gate.projection.weight)
    y = torch.randn(2, 3, DIM, dtype=torch.float64)
    f1 = f(y)
    f2 = f(y + f1)
    g = torch.sigmoid(gate.projection(torch.cat([f1, f2], dim=-1)))  # 2022, Eq. 26; [2, 3, 1]
    torch.testing.assert_close(runge_kutta_step(f, y, get_tableau("rk2"), gate), y + g * f1 + (1 - g) * f2)


@pytest.mark.parametrize(("gate_sum", "total"), [("one", 1), ("stages", 2)])
def test_normalised_gate_reads_increments_of_one_size(gate_sum: str, total: int) -> None:
    """γ = total · (g, 1 − g), g = sigmoid(W·[LN(F_1); LN(F_2)] + β), by hand."""
    gate = make("normalised-gate", gate_sum=gate_sum)
    torch.nn.init.normal_(gate.projection.weight)
    increments = [10.0**power * torch.randn(2, 3, DIM, dtype=torch.float64) for power in (1, 3)]

    def normalised(x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()

    g = torch.sigmoid(gate.projection(torch.cat([normalised(x) for x in increments], dim=-1)))
    torch.testing.assert_close(torch.cat(list(gate(increments)), dim=-1), total * torch.cat([g, 1 - g], dim=-1))
    larger = torch.cat(list(gate([100 * x for x in increments])), dim=-1)
    torch.testing.assert_close(larger, total * torch.cat([g, 1 - g], dim=-1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", GATES)
def test_a_gate_whose_weights_sum_to_the_stages_starts_as_ones(name: str) -> None:
    y = torch.randn(3, DIM, dtype=torch.float64)
    step = runge_kutta_step(f, y, get_tableau("rk2"), make(name, gate_sum="stages"))
    torch.testing.assert_close(step, runge_kutta_step(f, y, get_tableau("rk2"), make("ones")), rtol=0, atol=1e-6)


def test_only_gates_have_a_sum() -> None:
    with pytest.raises(ValueError, match="no gate whose weights could sum to 'stages'"):
        make("sigmoid", gate_sum="stages")
    with pytest.raises(ValueError, match="unknown sum .* 'two'; known are one, stages"):
        make("gate", gate_sum="two")


@pytest.mark.parametrize(("name", "link"), [("sigmoid", torch.sigmoid), ("tanh", torch.tanh)])
def test_sigmoid_and_tanh_act_on_a_logit_for_each_stage(name: str, link) -> None:
    """2022, Table 10: each stage's weight is a function of all increments."""
    made = make(name)
    torch.nn.init.normal_(made.projection.weight)
    y = torch.randn(2, 3, DIM, dtype=torch.float64)
    f1 = f(y)
    f2 = f(y + f1)
    weight = link(made.projection(torch.cat([f1, f2], dim=-1)))  # [2, 3, 2]
    expected = y + weight[..., :1] * f1 + weight[..., 1:] * f2
    torch.testing.assert_close(runge_kutta_step(f, y, get_tableau("rk2"), made), expected)


PROJECTED = [*GATES, "sigmoid", "tanh"]
POSITIVE = [t.name for t in TABLEAUS if t.stages > 1 and min(t.b) > 0 and t.order > 0]


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize("scheme", POSITIVE)
def test_what_is_read_from_the_increments_starts_as_the_scheme(scheme: str, name: str) -> None:
    tableau = get_tableau(scheme)
    y = torch.randn(2, 3, DIM, dtype=torch.float64)
    step = runge_kutta_step(f, y, tableau, make(name, scheme))
    torch.testing.assert_close(step, runge_kutta_step(f, y, tableau), rtol=0, atol=1e-6)


@pytest.mark.parametrize("gate_sum", GATE_SUMS)
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("scheme", POSITIVE)
def test_the_sum_of_a_gates_weights(scheme: str, name: str, gate_sum: str) -> None:
    gate = make(name, scheme, gate_sum)
    torch.nn.init.normal_(gate.projection.weight, std=3)
    stages = get_tableau(scheme).stages
    weights = gate([torch.randn(2, 3, DIM, dtype=torch.float64) for _ in range(stages)])
    total = {"one": 1.0, "stages": float(stages)}[gate_sum]
    torch.testing.assert_close(sum(weights), torch.full((2, 3, 1), total, dtype=torch.float64))


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize(
    ("scheme", "reason"),
    [("euler", "at least two stages"), ("midpoint", "between 0 and 1"), ("repeat", "no weights to choose")],
)
def test_they_are_refused_where_they_have_no_start(scheme: str, reason: str, name: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make(name, scheme)


def test_parameter_counts() -> None:
    counts = {name: sum(p.numel() for p in make(name).parameters()) for name in COEFFICIENTS}
    each = 2 * (2 * DIM + 1)
    gates = dict.fromkeys(GATES, 2 * DIM + 1)
    averages = {"ema": 1, "ema-vector": DIM}
    assert counts == {"tableau": 0, "ones": 0, "scalar": 2, **averages, **gates, "sigmoid": each, "tanh": each}


def test_ones_with_rk2_is_the_layer_applied_twice() -> None:
    """z = y + F(y) = Layer(y), y + F(y) + F(y + F(y)) = Layer(Layer(y)), forward and backward."""
    y = torch.randn(3, DIM, dtype=torch.float64, requires_grad=True)
    once = runge_kutta_step(f, y, get_tableau("rk2"), make("ones"))
    z = y + f(y)
    twice = z + f(z)
    torch.testing.assert_close(once, twice)
    grads = [torch.autograd.grad(out.square().sum(), y)[0] for out in (once, twice)]
    torch.testing.assert_close(*grads)


def test_scalars_start_as_ones_and_are_trained() -> None:
    y = torch.randn(3, DIM, dtype=torch.float64)
    scalar = make("scalar")
    out = runge_kutta_step(f, y, get_tableau("rk2"), scalar)
    torch.testing.assert_close(out, runge_kutta_step(f, y, get_tableau("rk2"), make("ones")))
    out.sum().backward()
    f1 = f(y)
    torch.testing.assert_close(scalar.weight.grad, torch.stack([f1.sum(), f(y + f1).sum()]))


@pytest.mark.parametrize("scheme", [t.name for t in TABLEAUS if t.stages > 1 and t.order])
@pytest.mark.parametrize("name", ["ema", "ema-vector"])
def test_exponential_moving_average_of_any_tableau(scheme: str, name: str) -> None:
    """γ_i = α (1 − α)^(s − i), as the recursion m ← (1 − α) m + α F over the stages; α = ½ at the start."""
    ema, y = make(name, scheme), torch.randn(2, 3, DIM, dtype=torch.float64)
    assert torch.equal(ema.alpha, torch.full_like(ema.alpha, 0.5))
    torch.nn.init.uniform_(ema.alpha)
    increments = [torch.randn_like(y) for _ in range(get_tableau(scheme).stages)]
    average = torch.zeros_like(y)
    for increment in increments:
        average = (1 - ema.alpha) * average + ema.alpha * increment
    torch.testing.assert_close(sum(w * f for w, f in zip(ema(increments), increments, strict=True)), average)


@pytest.mark.parametrize(("gate", "order"), [(0.5, 2), (0.3, 1)])
def test_a_constant_gate_keeps_order_two_only_at_one_half(gate: float, order: int) -> None:
    def error(steps: int) -> float:
        y = torch.tensor([0.5], dtype=torch.float64)
        for _ in range(steps):
            y = runge_kutta_step(torch.square, y, get_tableau("rk2"), lambda _: (gate, 1 - gate), 1 / steps)
        return abs(y.item() - 1.0)  # y' = y², y(0) = 1/2, y(1) = 1

    assert math.log2(error(256) / error(512)) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("coefficients", list(COEFFICIENTS))
def test_gradient_identity_of_rk2(coefficients: str) -> None:
    """∂y'/∂y = ½(1 + g), and g for γ = 1; g = (1 + F'(z))(1 + F'(y)), z = y + F(y) (2022, Eqs. 20-24)."""
    y = torch.randn(DIM, dtype=torch.float64)
    weigh = make(coefficients)
    got = torch.autograd.functional.jacobian(lambda y: runge_kutta_step(f, y, get_tableau("rk2"), weigh), y)
    eye = torch.eye(DIM, dtype=torch.float64)
    slope = [eye + torch.autograd.functional.jacobian(f, point) for point in (y + f(y), y)]
    g = slope[0] @ slope[1]
    expected = g if coefficients in ("ones", "scalar") else (eye + g) / 2
    if coefficients.startswith("ema"):  # γ = 1/4, 1/2 at the start: ∂y'/∂y = I + F'(y)/4 + (g − I − F'(y))/2
        expected = eye + (slope[1] - eye) / 4 + (g - slope[1]) / 2
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_computed_in_float32(dtype: torch.dtype, name: str) -> None:
    gate = make(name).to(dtype)
    torch.nn.init.normal_(gate.projection.weight)
    increments = [100 * torch.randn(4, DIM, dtype=dtype) for _ in range(2)]
    weights = gate(increments)
    assert all(w.dtype == torch.float32 and w.isfinite().all() for w in weights)
    exact = gate.double()([i.double() for i in increments])
    torch.testing.assert_close(weights[0].double(), exact[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_computed_in_float32_under_autocast(dtype: torch.dtype, name: str) -> None:
    gate = make(name).float()
    torch.nn.init.normal_(gate.projection.weight)
    increments = [3e4 * torch.randn(4, DIM) for _ in range(2)]
    expected = gate(increments)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(gate(increments), expected)


def test_shared_and_separate_sets() -> None:
    tableau = get_tableau("rk2")
    y = torch.randn(2, DIM, dtype=torch.float64)
    sets = [make("scalar") for _ in range(3)]
    for factor, coefficients in enumerate(sets, start=1):
        torch.nn.init.constant_(coefficients.weight, factor)
    separate = RungeKutta(tableau, sets).integrate([f] * 3, y)
    by_hand = y
    for coefficients in sets:
        by_hand = runge_kutta_step(f, by_hand, tableau, coefficients)
    torch.testing.assert_close(separate, by_hand)
    shared = RungeKutta(tableau, sets[:1]).integrate([f] * 3, y)
    assert not torch.allclose(shared, separate)


def test_steps_divide_the_unit_interval() -> None:
    """N steps of size 1/N over each field; their error falls with the order of the scheme."""
    tableau, y = get_tableau("rk4"), torch.randn(2, DIM, dtype=torch.float64)
    sets = [make("tableau", "rk4")]
    by_hand = y
    for _ in range(3):
        by_hand = runge_kutta_step(f, by_hand, tableau, step_size=1 / 3)
    torch.testing.assert_close(RungeKutta(tableau, sets, steps=3).integrate([f], y), by_hand)
    exact = RungeKutta(tableau, sets, steps=512).integrate([f], y)
    errors = [(RungeKutta(tableau, sets, steps).integrate([f], y) - exact).norm() for steps in (16, 32)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.1)
