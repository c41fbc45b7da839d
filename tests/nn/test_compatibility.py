"""Which options of a stack go together."""

import re
from typing import Any

import pytest

from ode_transformer.nn import DepthChoice


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
