"""Settings that a checkpoint remembers: which other settings its parameters can serve."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch

from ode_transformer.nn import CheckpointSettings, DepthChoice, LSTMChoice

RESIDUAL = DepthChoice()
idle = partial(DepthChoice, accepts_idle=True)
SEPARATE = DepthChoice("rk4", stage_parameters="separate")
LEARNED = [DepthChoice(name) for name in ("multistep", "dlcl-increments", "multistep-released")]


def load(trained: DepthChoice, model: DepthChoice, may_change: bool) -> None:
    state = CheckpointSettings("encoder", trained, False, {}).get_extra_state()
    CheckpointSettings("encoder", model, may_change, {}).set_extra_state(state)


COEFFICIENTS = "learned coefficients belong to the scheme that they were trained with"
GATE, EMBEDDED = DepthChoice("rk2", "gate"), LSTMChoice(first_cell="embedding")
POST_NORM = DepthChoice(function="layer-output", normalize_before=False)


@pytest.mark.parametrize(
    ("trained", "model"),
    [
        (DepthChoice("heun"), DepthChoice("rk2")),  # two names of one scheme
        (RESIDUAL, idle(function="layer-output", scope="san/ffn")),  # the same computation in pre-norm
        (DepthChoice("polynet-released"), idle("polynet-released", scope="san/ffn")),  # its only scope
        (DepthChoice("dlstm", normalize_before=False), DepthChoice("dlstm")),
    ],
)
def test_equal_settings_are_neither_refused_nor_reported(trained: DepthChoice, model: DepthChoice, caplog) -> None:
    for may_change in (False, True):
        load(trained, model, may_change)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("trained", "model", "description", "obstacle"),
    [
        (DepthChoice("rk4"), DepthChoice("rk2"), "trained with scheme rk4; this model has scheme heun", None),
        (RESIDUAL, DepthChoice(step_size=2.0), "trained with step size 1.0; this model has step size 2.0", None),
        (RESIDUAL, POST_NORM, "trained with function increment; this model has function layer-output", None),
        (GATE, DepthChoice("rk2", "gate", gate_sum="stages"), "gate sum one", COEFFICIENTS),
        (GATE, DepthChoice("rk4"), "scheme heun", COEFFICIENTS),
        (DepthChoice("rk4"), DepthChoice("rk4", "scalar"), "coefficients tableau", COEFFICIENTS),
        (GATE, DepthChoice("rk2", "gate", steps=2), "steps 1", COEFFICIENTS),
        *((learned, RESIDUAL, f"scheme {learned.scheme}", COEFFICIENTS) for learned in LEARNED),
        *((RESIDUAL, learned, "scheme euler", COEFFICIENTS) for learned in LEARNED),
        (DepthChoice("rk4"), SEPARATE, "stage parameters shared", "belong to the stage parameters"),
        (SEPARATE, DepthChoice("rk38", stage_parameters="separate"), "scheme rk4", "belong to the stages"),
        (DepthChoice("dlstm"), DepthChoice("dlstm", lstm=EMBEDDED), "zero", "belong to the first cell"),
        (DepthChoice("dlstm"), RESIDUAL, "scheme dlstm", "have different parameters"),
        (RESIDUAL, DepthChoice(splitting="strang"), "lie-trotter", "belong to the splitting"),
    ],
)
def test_changes_and_what_parameters_do_not_allow(
    trained: DepthChoice, model: DepthChoice, description: str, obstacle: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if obstacle is None:
        load(trained, model, may_change=True)
        (message,) = caplog.messages
        assert description in message
    with pytest.raises(ValueError, match=f"{description}.*: .*{obstacle or 'decode with --model-overrides'}"):
        load(trained, model, may_change=obstacle is not None)


PLAIN = "function=increment scope=san+ffn steps=1 stage_parameters=shared splitting=lie-trotter"
LEARNED_CELL = DepthChoice("dlstm", lstm=LSTMChoice(merge="residual", first_cell="learned"))


@pytest.mark.parametrize(
    ("line", "choice", "message"),
    [
        (f"scheme=heun coefficients=gate {PLAIN} gate_sum=stages", DepthChoice("rk2", "gate", gate_sum="stages"), ""),
        (f"scheme=dlstm coefficients=tableau {PLAIN} first_cell=learned input=residual", LEARNED_CELL, ""),
        (f"scheme=iiet coefficients=tableau {PLAIN} iterations=2", DepthChoice("iiet"), "iterations 2; .* no longer"),
    ],
)
def test_settings_of_version_0_2(line: str, choice: DepthChoice, message: str) -> None:
    settings, state = CheckpointSettings("encoder", choice, True, {}), torch.tensor(list(line.encode()))
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        settings.set_extra_state(state)
