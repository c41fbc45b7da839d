"""Macaron Net (Lu et al. 2019): architectures for translation whose layers are a Strang–Marchuk splitting.

The inner size given is that of a Transformer layer; each of a Macaron layer's two feed-forward networks has half of it.
"""

from __future__ import annotations

from typing import Any

import ode_transformer.models.ode_transformer  # noqa: F401  (registers the model of these architectures)
from ode_transformer.models.architectures import TRANSLATION_SIZES, register_architecture, stack_sizes

MACARON_OPTIONS: dict[str, Any] = {
    "layer_splitting": "strang",
    "max_relative_positions": 0,
    "encoder_layer_history": "none",
    "decoder_layer_history": "none",
}
MACARON_SIZES = {suffix: TRANSLATION_SIZES[suffix] for suffix in ("", "_tiny", "_wmt_en_de", "_wmt_en_de_big")} | {
    "_iwslt_de_en": stack_sizes(
        512, 2048, 4, encoder=6, decoder=6
    ),  # 4.1: the inner size is four times the width in all settings
    "_iwslt_de_en_released": TRANSLATION_SIZES["_iwslt_de_en"],
}

for _suffix, _size in MACARON_SIZES.items():
    register_architecture(f"macaron{_suffix}", MACARON_OPTIONS, _size)
