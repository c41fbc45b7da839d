"""Which options of a stack go together."""

import re
from typing import Any

import pytest

from ode_transformer.nn import DepthChoice, LSTMChoice, StackShape, refusal


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"scheme": "dlstm", "coefficients": "gate"}, "coefficients gate: only with a scheme whose stages"),
        ({"scheme": "multistep", "history": "dlcl"}, "pass --encoder-layer-history none for an encoder"),
        ({"scheme": "iiet", "coefficients": "ema"}, "weigh at least two stages; scheme 'iiet' has one"),
        ({"scheme": "midpoint", "coefficients": "gate"}, "start from weights between 0 and 1; scheme 'midpoint' has"),
        ({"scheme": "pcformer2", "normalize_before": False}, "use pre-norm (normalize-before)"),
        ({"scheme": "pcformer2", "middle_layers": 2}, "reads earlier layers, which have to be stepped by it too"),
        ({"scheme": "rk2", "stage_parameters": "separate", "middle_layers": 2}, "parameters have to be shared"),
        ({"scheme": "polynet-released", "scope": "ffn"}, "its scope is 'san+ffn' or 'san/ffn'"),
        ({"normalize_before": False}, "use pre-norm (normalize-before) or the function 'layer-output'"),
        ({"layerdrop": 0.1}, "LayerDrop"),
        ({"coefficients": "scalar", "normalize_step": True}, "choose coefficients 'vector' or 'tableau'"),
        ({"scheme": "rk2", "steps": 2, "function": "layer-output"}, "one step of size 1"),
        ({"scheme": "repeat", "function": "layer-output"}, "would add y to it once more"),
    ],
)
def test_reasons(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        DepthChoice(**parts)


IIET, LAYER_OUTPUT = {"scheme": "iiet"}, {"function": "layer-output"}
NORMALIZED = {"scheme": "rk2", "normalize_step": True}
CONCATENATED = {"scheme": "dlstm", "lstm": LSTMChoice(merge="concat")}


@pytest.mark.parametrize(
    ("parts", "shape", "reason"),
    [
        ({**IIET, "coefficients": "scalar"}, None, "coefficients scalar: the scheme takes the output of its one"),
        ({**IIET, "coefficients": "vector"}, None, "coefficients vector: the scheme takes the output of its one"),
        ({**LAYER_OUTPUT, "coefficients": "vector"}, None, "applies the layer, and weighs nothing"),
        ({**LAYER_OUTPUT, "coefficients": "vector", "share_coefficients": True}, None, "and weighs nothing"),
        ({**LAYER_OUTPUT, "scope": "ffn"}, None, "scope ffn: one whole step of Euler's method is the residual layer"),
        ({"scope": "san/ffn"}, None, "scope san/ffn: one whole step of Euler's method is the residual layer"),
        ({**NORMALIZED, "coefficients": "ones"}, None, "undoes a factor that all weights have"),
        ({**NORMALIZED, "coefficients": "gate", "gate_sum": "stages"}, None, "gate sum stages: the normalisation of a"),
        (
            {**NORMALIZED, "splitting": "strang", "scope": "san/ffn"},
            None,
            "undoes the half steps of splitting 'strang'",
        ),
        ({**NORMALIZED, "splitting": "strang", "scope": "ffn"}, None, "undoes the half steps of splitting 'strang'"),
        ({"scheme": "multistep-released", "scope": "san/ffn"}, None, "the scheme steps each sub-layer without it"),
        (CONCATENATED, StackShape(2, 1), "merge concat: a layer of the stack has a single attention"),
        ({"value_residual": "mean"}, StackShape(1, 1), "value residual mean: a stack of one layer has no later layer"),
        ({"scheme": "rk2", "middle_layers": 2}, StackShape(2, 1), "middle layers 2: these are all layers of the stack"),
        ({"scheme": "leapfrog"}, StackShape(1, 1), "scheme leapfrog: it reads earlier layers, and the stack has one"),
        ({"history": "dlcl"}, StackShape(0, 1), "history dlcl: the stack has no layers"),
    ],
)
def test_what_changes_nothing_is_refused_unless_a_model_was_trained_with_it(
    parts: dict[str, Any], shape: StackShape | None, reason: str
) -> None:
    trained = DepthChoice(**parts, accepts_idle=True)
    assert refusal(trained, shape) is None
    if shape is None:
        with pytest.raises(ValueError, match=re.escape(reason)):
            DepthChoice(**parts)
    else:
        assert reason in str(refusal(DepthChoice(**parts), shape))
        assert refusal(DepthChoice(**parts), StackShape(3, 2)) is None
