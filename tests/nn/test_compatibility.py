"""Which options go together, in one stack and in two stacks that share their flags."""

import pytest

from ode_transformer.nn import AttentionChoice, DepthChoice, LSTMChoice, refusal, refused_stack


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (DepthChoice("dlstm", "gate"), "steps no F and has no feed-forward networks: coefficients 'tableau' is all"),
        (DepthChoice("multistep", history="dlcl"), "pass --encoder-layer-history none for an encoder"),
        (DepthChoice("iiet", "ema"), "weigh at least two stages; scheme 'iiet' has one"),
        (DepthChoice("pcformer2", normalize_before=False), "use pre-norm (normalize-before)"),
        (DepthChoice(middle_layers=2), "evaluates all layers once: middle layers go with schemes of several stages"),
        (DepthChoice("pcformer2", middle_layers=2), "reads earlier layers, which have to be stepped by it too"),
        (DepthChoice("rk2", stage_parameters="separate", middle_layers=2), "stage parameters have to be shared"),
        (DepthChoice("leapfrog", "gate"), "without stage weights: coefficients 'tableau' is all it takes"),
        (DepthChoice("polynet-released", scope="ffn"), "its scope is 'san+ffn' or 'san/ffn'"),
        (DepthChoice("rk4", lstm=LSTMChoice("linear")), "go with scheme 'dlstm' alone"),
        (DepthChoice("rk2", gate_sum="stages"), "have no gate whose weights could sum to 'stages'"),
        (DepthChoice("rk4", gate_start="xavier"), "read no increments: gate start 'scheme' is all"),
        (DepthChoice(normalize_before=False), "use pre-norm (normalize-before) or the function 'layer-output'"),
        (DepthChoice(layerdrop=0.1), "LayerDrop"),
        (DepthChoice("euler", "scalar", normalize_step=True), "choose coefficients 'vector' or 'tableau'"),
        (DepthChoice("rk2", steps=2, function="layer-output"), "one step of size 1"),
        (DepthChoice("repeat", function="layer-output"), "would add y to it once more"),
        (DepthChoice(attention=AttentionChoice(relative_values=True)), "need a clip distance"),
        (DepthChoice("rk4", share_coefficients=True), "coefficients 'tableau' are not learned"),
    ],
)
def test_reasons(choice: DepthChoice, reason: str) -> None:
    assert reason in str(refusal(choice))


GATE = {"coefficients": "gate", "share_coefficients": True}
EMA = {"coefficients": "ema", "share_coefficients": True}
LSTM_PARTS = LSTMChoice("linear", first_cell="learned")


@pytest.mark.parametrize(
    ("user", "other"),
    [
        *((DepthChoice("rk2", **GATE), DepthChoice(scheme, **GATE)) for scheme in ("euler", "polynet", "leapfrog")),
        (DepthChoice("polynet", stage_parameters="separate"), DepthChoice(stage_parameters="separate")),
        (DepthChoice("leapfrog"), DepthChoice(history="dlcl")),
        (DepthChoice("pcformer2", **EMA), DepthChoice(**EMA)),
        (DepthChoice("repeat", middle_layers=2), DepthChoice(middle_layers=2)),
        (DepthChoice("dlstm", lstm=LSTM_PARTS), DepthChoice(lstm=LSTM_PARTS)),
        (DepthChoice("dlstm", lstm=LSTM_PARTS, **GATE), DepthChoice("rk2", lstm=LSTM_PARTS, **GATE)),
    ],
)
def test_a_stack_ignores_flags_that_only_the_other_can_use(user: DepthChoice, other: DepthChoice) -> None:
    assert refused_stack({"encoder": user, "decoder": other}) is None
    assert refused_stack({"encoder": other, "decoder": user}) is None


@pytest.mark.parametrize(
    "choice", [DepthChoice(**GATE), DepthChoice(stage_parameters="separate"), DepthChoice(lstm=LSTM_PARTS)]
)
def test_a_flag_that_no_stack_can_use_is_refused(choice: DepthChoice) -> None:
    assert refused_stack({"encoder": choice, "decoder": choice}) == ("encoder", refusal(choice))
