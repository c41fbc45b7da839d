"""The layers of a recorded training, compiled: without a GPU by PyTorch's tracing alone."""

from typing import Any

import pytest
import torch
from models_for_tests import small_model
from recorded_steps import build_criterion, gradients_of, sample_for
from torch._dynamo.utils import counters

from ode_transformer.speed import kernels


@pytest.mark.slow
def test_compiled_layers_compute_the_same_in_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    real_compile, outcomes = torch.compile, []
    monkeypatch.setattr(torch, "compile", lambda f, **options: real_compile(f, backend="aot_eager", **options))
    model = small_model(arch="ode_transformer_rk2", max_relative_positions=3, encoder_layer_history="dlcl").train()
    counters.clear()
    for compiles in (False, True):
        monkeypatch.setattr(kernels, "is_used", lambda name, _, compiles=compiles: compiles and name == "compile")
        criterion = build_criterion("", cuda_graphs=True)
        for rows in (3, 2, 3):
            model.zero_grad()
            loss, _, log = criterion(model, first_rows(sample_for("", rows), rows))
            loss.backward()
            outcomes.append((loss.detach(), gradients_of(model)))
        assert log["graph_replays"] == 1
    torch.testing.assert_close(outcomes[:3], outcomes[3:], rtol=1e-4, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 2  # of encoder and decoder, for two shapes
    assert not counters["graph_break"]


def first_rows(sample: dict[str, Any], rows: int) -> dict[str, Any]:
    net_input = {name: x[:rows] for name, x in sample["net_input"].items()}
    return sample | {"net_input": net_input, "target": sample["target"][:rows]}
