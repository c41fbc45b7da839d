"""Decoding by CTranslate2 for ``speed.py``."""

import pytest
from ctranslate2_decoding import CTranslate2System
from measuring import Setting

from ode_transformer.support.errors import UserError

SETTING = Setting(16, 24, 2, 1, 40, 3, 6, 5, 0.2, 2, "cpu", "fp32", 1)


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_every_hypothesis_has_the_fixed_length(quantization: str) -> None:
    histories = {f"{stack}_layer_history": "none" for stack in ("encoder", "decoder")}
    system = CTranslate2System("ode_transformer_euler", {"encoder_layers": 1} | histories, SETTING, quantization)
    system.prepare_to_decode()
    assert system.decode()["decode"] > 0  # decode raises for another length


def test_a_system_that_ctranslate2_cannot_express_is_refused() -> None:
    with pytest.raises(UserError, match="cannot express --encoder-layer-history dlcl, only none"):
        CTranslate2System("ode_transformer_euler", {"encoder_layers": 1}, SETTING).prepare_to_decode()
