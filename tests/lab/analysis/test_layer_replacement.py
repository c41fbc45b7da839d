"""A layer as a function, seen and replaced, in every kind of stack; the one-pass fit against one of all pairs."""

from functools import reduce
from itertools import repeat
from operator import add
from typing import Any

import numpy as np
import pytest
import torch
from batches import pair_sample
from models_for_tests import beam_rows, check_search, small_model
from torch import nn

from ode_transformer.lab.analysis.layer_replacement import (
    LinearSums,
    distil,
    layer_sums,
    linear_layer,
    negative_log_likelihood,
    replace_layer,
    see_layers,
)
from ode_transformer.lab.analysis.systems import run_hooked
from ode_transformer.nn import LayerId

BOTH = ("encoder", "decoder")


def both(**options: str) -> dict[str, str]:
    return {f"{stack}_{name}": value for stack in BOTH for name, value in options.items()}


KINDS: dict[str, dict[str, Any]] = {  # the ways in which a stack hands a layer what it reads
    "euler": both(layer_history="none"),
    "dlcl": {},
    "gate": {"ode_coefficients": "gate", **both(ode_scheme="rk2")},
    "sub-layers": {"ode_coefficients": "scalar", "ode_function_scope": "san/ffn", **both(ode_scheme="rk4")},
    "dlstm with history": {"dlstm_share": "none", **both(ode_scheme="dlstm", layer_history="dlcl")},
    **{name: both(ode_scheme=name, layer_history="none") for name in ("multistep", "pcformer2", "iiet")},
    "strang": {"layer_splitting": "strang", **both(ode_scheme="rk4")},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_layer = pytest.mark.parametrize("layer_id", [LayerId("encoder", 2), LayerId("decoder", 3)], ids=str)

SAMPLE = pair_sample([9, 6, 7, 8], [8, 9, 5, 9])
INPUT = SAMPLE["net_input"]


def model_of(kind: dict[str, Any]) -> Any:
    return small_model(encoder_layers=3, decoder_layers=3, **kind)


def output(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(**INPUT)[0]


class Recording(nn.Module):
    """A layer as it has been seen: knows what to make of one argument."""

    def __init__(self, model: Any, layer_id: LayerId) -> None:
        super().__init__()

        def see(layer, inputs, outputs, padding) -> None:
            if layer == layer_id:
                self.given, self.made = torch.cat(inputs, dim=-1), torch.cat(outputs, dim=-1)

        run_hooked(model, [SAMPLE], see_layers, see)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        assert torch.equal(given, self.given)
        return self.made


@every_layer
@every_kind
def test_a_layer_replaced_by_its_own_function_changes_nothing(kind: dict[str, Any], layer_id: LayerId) -> None:
    """Later layers read what they read and keep coefficients of their own."""
    model = model_of(kind)
    expected = output(model)
    recording = Recording(model, layer_id)
    with replace_layer(model, layer_id, recording):
        assert torch.equal(output(model), expected)
        recording.made = recording.made + torch.randn_like(recording.made)
        assert not torch.allclose(output(model), expected)
    assert torch.equal(output(model), expected)


@every_kind
def test_decoding_step_by_step_after_reordering_equals_the_full_pass(kind: dict[str, Any]) -> None:
    model, layer_id = model_of(kind), LayerId("decoder", 3)
    recording = Recording(model, layer_id)
    width, made = recording.given.size(-1), recording.made.size(-1)
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(made, width, generator=generator) / width**0.5
    layer = linear_layer(weight, torch.randn(made, generator=generator), next(model.parameters()))
    with replace_layer(model, layer_id, layer):
        check_search(model, INPUT["src_tokens"], beam_rows(generator), steps=5)


def make_affine(model: Any, layer_id: LayerId) -> None:
    """Lets every sub-layer of a layer add a constant: the layer is y + b."""
    with torch.no_grad():
        for name, parameter in getattr(model, layer_id.stack).layers[layer_id.number - 1].named_parameters():
            if name.endswith(("out_proj.weight", "fc2.weight")):
                parameter.zero_()


@every_layer
@pytest.mark.parametrize("kind", ["euler", "dlcl", "gate", "strang"])
def test_a_linear_layer_is_recovered_exactly(kind: str, layer_id: LayerId) -> None:
    model = model_of(KINDS[kind])
    make_affine(model, layer_id)
    expected = output(model)
    fit = layer_sums(model, [SAMPLE], [layer_id])[layer_id].fit()
    assert fit.r_squared == pytest.approx(1, abs=1e-10)
    torch.testing.assert_close(fit.weight, torch.eye(16, dtype=torch.float64), atol=1e-6, rtol=0)
    with replace_layer(model, layer_id, linear_layer(fit.weight, fit.bias, next(model.parameters()))):
        torch.testing.assert_close(output(model), expected)
    other = LayerId(layer_id.stack, layer_id.number % 3 + 1)
    assert layer_sums(model, [SAMPLE], [other])[other].fit().r_squared < 0.9999


def test_cells_of_a_grid_are_positions() -> None:
    """A joint layer's fit counts real cells, also of a batch that --max-joint-cells would divide."""
    model = small_model(arch="reformer", encoder_layers=2, max_joint_cells=30)
    layer_id = LayerId("decoder", 1)
    sums = layer_sums(model, [SAMPLE], [layer_id, LayerId("encoder", 1)])
    cells = sum(s * t for s, t in zip([9, 6, 7, 8], [8, 9, 5, 9], strict=True))
    assert sums[layer_id].fit().positions == cells
    assert sums[LayerId("encoder", 1)].fit().positions == 9 + 6 + 7 + 8
    fit = sums[layer_id].fit()
    with replace_layer(model, layer_id, linear_layer(fit.weight, fit.bias, next(model.parameters()))):
        again = layer_sums(model, [SAMPLE], [layer_id])[layer_id].fit()
    assert again.r_squared == pytest.approx(1, abs=1e-9)


@every_layer
def test_likelihood_trains_w_and_b_alone_and_gets_better(layer_id: LayerId) -> None:
    model = model_of(KINDS["gate"])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    start = layer_sums(model, [SAMPLE], [layer_id])[layer_id].fit()
    trained = distil(model, layer_id, start, repeat(SAMPLE), updates=10, lr=3e-2)
    losses = []
    for fit in (start, trained):
        function = linear_layer(fit.weight, fit.bias, next(model.parameters()))
        with torch.no_grad(), replace_layer(model, layer_id, function):
            losses.append(negative_log_likelihood(model, SAMPLE).item())
    assert losses[1] < losses[0] - 0.01
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def pairs(count: int, given: int, made: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments far from zero mean, of different scales, and values that are no linear function of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, given, generator=generator, dtype=torch.float64)
    x = x * torch.logspace(-2, 2, given, dtype=torch.float64) + 3
    y = torch.tanh(x @ torch.randn(given, made, generator=generator, dtype=torch.float64)) + 5
    return x, y


def in_parts(x: torch.Tensor, y: torch.Tensor, size: int) -> LinearSums:
    return reduce(add, map(LinearSums.of_pairs, x.split(size), y.split(size)))


@pytest.mark.parametrize("size", [7, 200])
def test_the_solution_is_that_of_numpy(size: int) -> None:
    x, y = pairs(200, 9, 4)
    fit = in_parts(x, y, size).fit()
    expected, residuals, rank, _ = np.linalg.lstsq(np.c_[x, np.ones(200)], y.numpy(), rcond=None)
    np.testing.assert_allclose(torch.cat([fit.weight, fit.bias[:, None]], dim=1), expected.T, rtol=1e-8, atol=1e-10)
    variation = ((y - y.mean(0)) ** 2).sum().item()
    assert fit.r_squared == pytest.approx(1 - float(np.sum(residuals)) / variation, abs=1e-10)
    assert (fit.positions, fit.rank) == (200, rank - 1)
    assert 0.1 < fit.r_squared < 0.9


def test_arguments_in_a_subspace_have_the_smallest_solution() -> None:
    """Behind a layer normalisation the entries sum to zero; in single precision they do so up to rounding."""
    x, y = pairs(300, 8, 3)
    x = torch.nn.functional.layer_norm(x, (8,)).float()
    fit = in_parts(x, y, 50).fit()
    x = x.double()
    expected = np.linalg.lstsq(x - x.mean(0), y - y.mean(0), rcond=1e-6)[0]
    assert fit.rank == 7
    np.testing.assert_allclose(fit.weight, expected.T, rtol=1e-5, atol=1e-7)
