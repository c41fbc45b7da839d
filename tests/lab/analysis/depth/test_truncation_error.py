"""Steps of blocks: what their stages read and add, their errors against the matrix exponential, and the commands."""

from math import factorial
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import PAD, batch, pair_sample
from checkpoint_for_tests import make_language_model
from models_for_tests import small_model
from torch import Tensor

from ode_transformer.cli.command import main
from ode_transformer.lab.analysis.depth.block_flows import (
    TRAINED,
    BlockErrors,
    Method,
    block_errors,
    depth_paths,
    principal_coordinates,
    refusals,
)
from ode_transformer.lab.analysis.depth.stage_inputs import stage_inputs
from ode_transformer.lab.analysis.depth.truncation_error import measured_order
from ode_transformer.nn import Layer
from ode_transformer.nn.layer_hooks import removed_afterwards, see_layer_inputs
from ode_transformer.numerics import get_tableau

A = 0.3 * torch.randn(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
NO_HISTORY = {"encoder_layer_history": "none", "decoder_layer_history": "none"}
NAMES = ("euler", "rk2", "rk4")
TABLEAUS = {name: get_tableau(name) for name in NAMES}


def measured(model: Any, samples: list, counts: tuple[int, ...] = (1,), **more: Any) -> dict[str, BlockErrors]:
    options = {"tolerance": 1e-7, "max_steps": 1024} | more
    blocks = block_errors(model, samples, TABLEAUS, counts, **options)
    return {block.block: block for block in blocks}


def linear_field(tokens: Tensor, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, Tensor]:
    """A language model with one layer of F(y) = A y, and y where its step begins, at positions without padding."""
    choice = {"ode_coefficients": "tableau", "decoder_layers": 1, **NO_HISTORY, **options}
    model = small_model(arch="ode_transformer_lm_rk2", **choice)
    first_inputs: list[Tensor] = []
    handles = see_layer_inputs(model.decoder, lambda _, inputs, __: first_inputs.append(inputs[0]))
    with removed_afterwards(handles), torch.no_grad():
        model(tokens)
    monkeypatch.setattr(Layer, "increment", lambda _, y, *__, **___: y @ A.T)
    return model, first_inputs[0][tokens.ne(PAD)]


def means(y: Tensor, point: Tensor, increment: Tensor, first: Tensor) -> list[float]:
    cosines = (increment * first).sum(dim=1) / (increment.norm(dim=1) * first.norm(dim=1))
    ratios = [(point - y).norm(dim=1) / y.norm(dim=1), increment.norm(dim=1) / y.norm(dim=1), cosines]
    return [float(ratio.mean()) for ratio in ratios]


@pytest.mark.parametrize(("size", "steps"), [(1.0, 1), (0.5, 1), (1.0, 2)])
def test_stages_by_definition(size: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of Heun's scheme over F(y) = A y, those of the first step."""
    tokens = batch([6, 3, 4])
    model, y = linear_field(tokens, monkeypatch, ode_step_size=size, ode_steps=steps)
    first = size * y @ A.T
    second_point = y + first / steps
    found = stage_inputs(model, [{"net_input": {"src_tokens": tokens}}])
    assert [(stage.block, stage.stage) for stage in found] == [("decoder layer 1", 1), ("decoder layer 1", 2)]
    for stage, point in zip(found, (y, second_point), strict=True):
        expected = means(y, point, size * point @ A.T, first)
        assert [stage.moved, stage.increment, stage.cosine] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [1.0, 0.5])
def test_a_linear_field_against_the_matrix_exponential(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solution of y' = A y is that at the end of the model's own step, at t = h."""
    tokens = batch([6, 3, 4])
    model, y0 = linear_field(tokens, monkeypatch, ode_step_size=size)
    (block,) = measured(model, [{"net_input": {"src_tokens": tokens}}], (1, 2)).values()
    scaled = size * A
    exact = y0 @ torch.matrix_exp(scaled).T

    def taylor(order: int, step: Tensor = scaled) -> Tensor:
        return sum(torch.linalg.matrix_power(step, power) / factorial(power) for power in range(order + 1))

    moved = (exact - y0).norm(dim=1)
    propagators = {
        Method("euler", 1): taylor(1),
        Method("euler", 2): taylor(1, scaled / 2) @ taylor(1, scaled / 2),
        Method("rk2", 1): taylor(2),
        Method("rk4", 1): taylor(4),
        Method(TRAINED, 1): taylor(2),
    }
    for method, propagator in propagators.items():
        errors = (y0 @ propagator.T - exact).norm(dim=1)
        expected = float((errors / moved).mean()), float(errors.mean())
        assert block.errors[method] == pytest.approx(expected, rel=1e-3)
    assert block.distance == pytest.approx(float(moved.mean()))
    assert block.positions == 13


@pytest.mark.parametrize(
    ("scheme", "parts"), [("euler", {}), ("rk2", NO_HISTORY), ("rk4", {"arch": "reformer", "max_joint_cells": 20})]
)
def test_what_is_trained_as_a_tableau_has_its_error(scheme: str, parts: dict[str, Any]) -> None:
    model = small_model(**(parts | {"decoder_ode_scheme": scheme}))
    sample = pair_sample([4, 3], [5, 2])
    before = model(**sample["net_input"])[0]
    names = [name for name, _ in model.named_modules()]
    for name, block in measured(model, [sample], tolerance=1e-2).items():
        stack = name.split()[0]
        assert block.errors[block.trained] == block.errors[Method(scheme if stack == "decoder" else "euler", 1)]
    assert [name for name, _ in model.named_modules()] == names
    assert torch.equal(model(**sample["net_input"])[0], before)


def test_smooth_blocks_keep_the_orders() -> None:
    """Attention, normalisation and a feed-forward network without ReLU's kinks."""
    model = small_model(activation_fn="tanh", **NO_HISTORY)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "fc2" in name or "out_proj" in name:
                parameter.mul_(0.2)  # a short way, on which the solution needs few steps
    blocks = measured(model, [pair_sample([6, 3, 4], [5, 7, 2])], (8, 16), tolerance=1e-10).values()
    for name, order in zip(NAMES, (1, 2, 4), strict=True):
        assert [measured_order(block, name, (8, 16)) for block in blocks] == pytest.approx([order] * 4, abs=0.25)


@pytest.mark.parametrize("history", ["none", "dlcl"])
@pytest.mark.parametrize("scheme", ["euler", "rk4"])
def test_a_models_own_scheme_walks_its_own_path(scheme: str, history: str) -> None:
    model = small_model(encoder_ode_scheme=scheme, encoder_layer_history=history)
    one = pair_sample([5], [5])
    before = model(**one["net_input"])[0]
    paths = depth_paths(model, "encoder", one, TABLEAUS)
    for step, own in zip(paths[scheme], paths[TRAINED], strict=True):
        torch.testing.assert_close(step[[0, -1]], own)
    assert [len(step) for step in paths["rk4"]] == [5, 5]  # the points of four stages and the end
    other = "rk4" if scheme == "euler" else "euler"
    assert (paths[other][-1][-1] - paths[TRAINED][-1][-1]).norm() > 1e-4
    starts_where_it_ended = torch.allclose(paths["euler"][1][0], paths["euler"][0][-1])
    assert starts_where_it_ended == (history == "none")
    assert torch.equal(model(**one["net_input"])[0], before)  # the scheme is the trained one again


def test_the_plane_keeps_what_differs_most() -> None:
    corners = torch.tensor([[3.0, 0, 0, 5], [-3, 0, 0, 5], [0, 1, 0, 5], [0, -1, 0, 5]])
    points, fractions = principal_coordinates(corners)
    torch.testing.assert_close(points, corners[:, :2])
    assert fractions == pytest.approx([0.9, 0.1])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"encoder_ode_scheme": "dlstm"}, "a depth-wise LSTM steps no F"),
        ({"encoder_ode_scheme": "rk2", "ode_function": "layer-output"}, "no rate of change"),
        ({"encoder_ode_scheme": "rk2", "ode_stage_parameters": "separate"}, "each stage has another F"),
    ],
)
def test_blocks_without_a_flow(parts: dict[str, Any], reason: str) -> None:
    assert reason in str(refusals(small_model(**parts))["encoder"])


def test_language_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_language_model(tmp_path)
    paths = [str(tmp_path / "model.pt"), "--data", str(tmp_path)]
    options = ["--tolerance", "0.1", "--sentences", "3", "--output", str(tmp_path / "errors.png")]
    assert main(["analyse", "truncation-error", *paths, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split(", ")[1] for line in lines[::6]] == ["decoder layer 1", "decoder layer 2"]
    assert main(["analyse", "gradient-norms", *paths, "--output", str(tmp_path / "norms.png")]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["decoder:"]
    assert main(["analyse", "coefficients", *paths]) == 0
    blocks = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert blocks == ["decoder layer 1", "decoder layer 2"]
    assert main(["analyse", "truncation-error", *paths, "--schemes", "euler,dlstm"]) == 2
    assert "--schemes dlstm: no Runge–Kutta scheme; there are euler, " in capsys.readouterr().err
    assert main(["analyse", "linear-probe", *paths, "--output", str(tmp_path / "probe")]) == 2
    assert "a model of the task language_modeling, not of translation" in capsys.readouterr().err
