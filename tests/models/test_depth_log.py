"""Gradient norms and stage weights that a training logs are those of its batches."""

import math
from argparse import Namespace
from typing import Any

import pytest
from batches import PAD, pair_sample
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.logging import metrics
from models_for_tests import small_model

from ode_transformer.lab.analysis.depth.coefficients import stage_weights
from ode_transformer.lab.analysis.depth.gradient_norms import gradient_norms
from ode_transformer.numerics import LEARNED

KINDS: dict[str, dict[str, Any]] = {
    "euler": {"encoder_layer_history": "none", "decoder_layer_history": "none"},
    "rk2 gate, dlcl": {"encoder_ode_scheme": "rk2", "ode_coefficients": "gate"},
    "scalars of each part": {
        **{"encoder_ode_scheme": "rk4", "decoder_ode_scheme": "rk2", "ode_coefficients": "scalar"},
        **{"ode_function_scope": "san/ffn", "ode_steps": 2},
    },
    "pcformer2, vector": {
        **{"encoder_ode_scheme": "pcformer2", "ode_coefficients": "ema-vector", "value_residual": "learned"},
        **{"encoder_layer_history": "none", "ode_function_scope": "san/ffn"},
    },
    "rk4-moulton": {"encoder_ode_scheme": "rk4-moulton", "encoder_layer_history": "none"},
    "dlstm": {"encoder_ode_scheme": "dlstm", "decoder_ode_scheme": "dlstm"},
    "recomputed": {"encoder_ode_scheme": "rk2", "ode_coefficients": "gate", "checkpoint_activations": True},
    "reformer": {"arch": "reformer", "decoder_ode_scheme": "rk2", "ode_coefficients": "gate"},
    "reformer by parts": {"arch": "reformer", "decoder_ode_scheme": "rk2", "ode_coefficients": "gate", "cells": 40},
}
TASK = Namespace(target_dictionary=Namespace(pad=lambda: PAD))


def logged(model: Any, samples: list[dict[str, Any]], update: int = 0, scale: float = 1.0, **more: Any) -> dict:
    """What one update logs, as fairseq's trainer calls a model; ``scale`` is that of half precision's losses."""
    criterion = more.get("criterion", CrossEntropyCriterion(TASK, sentence_avg=False))
    with metrics.aggregate(new_root=True) as found:
        for one in samples:
            model.train()
            model.set_num_updates(update)
            loss, *_ = criterion(model, one)
            (scale * loss).backward()
    return found.get_smoothed_values()


def kind(name: str, **options: Any) -> Any:
    options = KINDS[name] | options
    cells = options.pop("cells", 0)
    return small_model(**options, **({"max_joint_cells": cells} if "arch" in options else {}))


def norms_of(values: dict[str, float], stack: str) -> list[float]:
    count = sum(key.startswith(f"depth/{stack}/") and "norm" in key for key in values)
    return [values[f"depth/{stack}/{number}/gradient_norm"] for number in range(1, count + 1)]


@pytest.mark.parametrize(("name", "scale"), [*((name, 1.0) for name in KINDS), ("rk2 gate, dlcl", 1024.0)])
def test_gradient_norms_are_those_of_the_batch(name: str, scale: float) -> None:
    one = pair_sample([6, 3])
    values = logged(kind(name, log_depth_interval=1), [one], scale=scale)
    expected = gradient_norms(kind(name), [one])
    for stack in ("encoder", "decoder"):
        assert norms_of(values, stack) == pytest.approx(expected[stack], rel=1e-6)
    assert len(expected["decoder"]) == 2


@pytest.mark.parametrize("name", KINDS)
def test_weights_are_those_of_the_batch(name: str) -> None:
    one = pair_sample([6, 3])
    values = logged(kind(name, log_depth_interval=1), [one])
    model, found = kind(name, **({"cells": 0} if "reformer" in name else {})), {}
    for row in stage_weights(model, [one]):
        if row.block.endswith("earlier layers"):
            continue
        stack, _, number, *part = row.block.split()
        place = "/".join((stack, number, *part))
        found |= {f"depth/{place}/weight_{stage}": mean for stage, mean in enumerate(row.mean, 1)}
    learned = any(stack.choice.coefficients in LEARNED for stack in (model.encoder, model.decoder))
    assert found or not learned
    found = found if learned else {}
    assert {key: v for key, v in values.items() if "weight" in key} == pytest.approx(found, rel=1e-6)


def test_every_nth_update_alone() -> None:
    model, one = kind("rk2 gate, dlcl", log_depth_interval=3), [pair_sample([6, 3])]
    assert [bool(logged(model, one, update)) for update in range(7)] == [False, False, True] * 2 + [False]
    # A validation after an update that was to be followed, but had no backward pass.
    model.set_num_updates(2)
    model.eval()
    with metrics.aggregate(new_root=True) as found:
        CrossEntropyCriterion(TASK, sentence_avg=False)(model, one[0])
    assert found.get_smoothed_values() == {}


@pytest.mark.parametrize("scale", [0.0, math.inf])
def test_what_is_no_number_is_not_logged(scale: float) -> None:
    """A batch that only keeps processes in step counts 0 times; a loss scale that is too large gives no gradients."""
    values = logged(kind("rk2 gate, dlcl", log_depth_interval=1), [pair_sample([6, 3])], scale=scale)
    assert norms_of(values, "encoder") == []
