"""Settings that a checkpoint remembers: which other settings its parameters can serve."""

import pytest

from ode_transformer.nn import DepthChoice, LSTMChoice, SettingsChange, checkpoint_settings, settings_change

RESIDUAL = DepthChoice()
SEPARATE = DepthChoice("rk4", stage_parameters="separate")
LEARNED = [DepthChoice(name) for name in ("multistep", "dlcl-increments", "multistep-released")]


def compare(trained: DepthChoice, model: DepthChoice) -> SettingsChange | None:
    return settings_change(checkpoint_settings(trained), model)


@pytest.mark.parametrize(
    ("trained", "model"),
    [
        (DepthChoice("rk4"), DepthChoice("rk4")),
        (DepthChoice("heun"), DepthChoice("rk2")),  # two names of one scheme
        (RESIDUAL, DepthChoice(function="layer-output", scope="san/ffn")),  # the same computation in pre-norm
        (DepthChoice("polynet-released"), DepthChoice("polynet-released", scope="san/ffn")),  # its only scope
        (DepthChoice("dlstm", normalize_before=False), DepthChoice("dlstm")),
        (DepthChoice("iiet"), DepthChoice("iiet", iterations=3)),
    ],
)
def test_equal_settings(trained: DepthChoice, model: DepthChoice) -> None:
    assert compare(trained, model) is None


@pytest.mark.parametrize(
    ("trained", "model", "description"),
    [
        (DepthChoice("rk4"), DepthChoice("rk2"), "trained with scheme rk4; this model has scheme heun"),
        (RESIDUAL, DepthChoice(step_size=2.0), "trained with step size 1.0; this model has step size 2.0"),
        (
            DepthChoice("iiet"),
            DepthChoice("iiet", iterations=1),
            "trained with iterations 0; this model has iterations 1",
        ),
        (RESIDUAL, DepthChoice("leapfrog"), "trained with scheme euler; this model has scheme leapfrog"),
        (
            RESIDUAL,
            DepthChoice(function="layer-output", normalize_before=False),
            "trained with function increment; this model has function layer-output",
        ),
    ],
)
def test_a_change_that_the_parameters_allow(trained: DepthChoice, model: DepthChoice, description: str) -> None:
    assert compare(trained, model) == (description, None)


@pytest.mark.parametrize(
    ("trained", "model", "obstacle"),
    [
        *(
            (trained, model, "learned coefficients belong to the scheme that they were trained with")
            for trained, model in (
                (DepthChoice("rk2", "gate"), DepthChoice("rk2", "gate", gate_sum="stages")),
                (DepthChoice("rk2", "gate", gate_sum="stages"), DepthChoice("rk2", "gate")),
                (DepthChoice("rk2", "gate"), DepthChoice("rk4")),
                (DepthChoice("rk4"), DepthChoice("rk4", "scalar")),
                (DepthChoice("rk2", "gate"), DepthChoice("rk2", "gate", steps=2)),
                *((learned, RESIDUAL) for learned in LEARNED),
                *((RESIDUAL, learned) for learned in LEARNED),
            )
        ),
        *(
            (trained, model, "belong to the stages")
            for trained, model in (
                (DepthChoice("rk4"), SEPARATE),
                (SEPARATE, DepthChoice("rk4")),
                (SEPARATE, DepthChoice("rk38", stage_parameters="separate")),
                (SEPARATE, DepthChoice("rk4", stage_parameters="separate", scope="san")),
            )
        ),
        *(
            (
                DepthChoice("dlstm"),
                DepthChoice("dlstm", lstm=LSTMChoice(**{option: value})),
                f"belong to its {name}",
            )
            for option, value, name in (
                ("first_cell", "learned", "first cell"),
                ("normalization", "joint", "normalization"),
                ("merge", "residual", "input"),
            )
        ),
        (DepthChoice("dlstm"), RESIDUAL, "have different parameters"),
        (RESIDUAL, DepthChoice("dlstm"), "have different parameters"),
        (RESIDUAL, DepthChoice(splitting="strang"), "layers of another splitting have other sub-layers"),
    ],
)
def test_a_change_that_the_parameters_do_not_allow(trained: DepthChoice, model: DepthChoice, obstacle: str) -> None:
    change = compare(trained, model)
    assert change is not None
    assert obstacle in change.obstacle
