"""Macaron Net (Lu et al. 2019): layers by Strang–Marchuk splitting, architectures for translation.

The inner size is that of a Transformer layer; the two feed-forward networks of a Macaron layer have half of it each.
"""

from __future__ import annotations

from typing import Any

from ode_transformer.models.ode_transformer import SIZES, register, size_of

MACARON: dict[str, Any] = {
    "layer_splitting": "strang",
    "max_relative_positions": 0,
    "encoder_layer_history": "none",
    "decoder_layer_history": "none",
}
MACARON_SIZES = {suffix: SIZES[suffix] for suffix in ("", "_tiny", "_wmt_en_de", "_wmt_en_de_big")} | {
    "_iwslt_de_en": size_of(512, 2048, 4, 6, 6),  # 4.1: the inner size is four times the width in all settings
    "_iwslt_de_en_released": size_of(512, 1024, 4, 6, 6),
}

for _suffix, _size in MACARON_SIZES.items():
    register(f"macaron{_suffix}", MACARON, _size)
