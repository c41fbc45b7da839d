"""Depth-wise LSTM Transformer (Xu et al. 2020): attention layers connected by an LSTM over depth.

In the paper's sizes the hidden computation is as wide as a Transformer's feed-forward network and its input is twice as
wide, so that a model of base size has 36% more parameters outside the embeddings than its baseline. ``dlstm_matched*``
have as many parameters as the baseline.
"""

from __future__ import annotations

from typing import Any

import ode_transformer.models.ode_transformer  # noqa: F401  (registers the model of these architectures)
from ode_transformer.models.architectures import TRANSLATION_SIZES, register_architecture
from ode_transformer.nn import LSTM

DLSTM_OPTIONS: dict[str, Any] = {
    "encoder_ode_scheme": LSTM,
    "decoder_ode_scheme": LSTM,
    "activation_fn": "gelu",
    # The LSTM normalises its input; gradients stay even without further normalisation (docs/depth_wise_lstm.md).
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "max_relative_positions": 0,
    "encoder_layer_history": "none",
    "decoder_layer_history": "none",
}
DLSTM_SIZES = {
    suffix: TRANSLATION_SIZES[suffix] for suffix in ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")
}


def matched_inner_dim(size: dict[str, Any]) -> int:
    """Return the inner size f', a multiple of 8, that gives the layers as many parameters as a Transformer's.

    With M and N layers, of 4(d² + d) parameters in an attention and 2d in a normalisation:

        Transformer       M attentions + 2N attentions + (M + N)(2df + f + d) + (2M + 3N) normalisations
        depth-wise LSTM   M attentions + 2N attentions + (M + N)(3df' + 3f' + d) + 2(6d² + 9d)
    """
    d, f = size["encoder_embed_dim"], size["encoder_ffn_embed_dim"]
    encoder, decoder = size["encoder_layers"], size["decoder_layers"]
    layers = encoder + decoder
    available = layers * (2 * d * f + f) + (2 * encoder + 3 * decoder) * 2 * d - 2 * (6 * d * d + 9 * d)
    return 8 * round(available / (layers * (3 * d + 3)) / 8)


for _suffix, _size in DLSTM_SIZES.items():
    register_architecture(f"dlstm{_suffix}", DLSTM_OPTIONS, _size)
    _inner_dim = matched_inner_dim(_size)
    _matched_size = _size | {"encoder_ffn_embed_dim": _inner_dim, "decoder_ffn_embed_dim": _inner_dim}
    register_architecture(f"dlstm_matched{_suffix}", DLSTM_OPTIONS, _matched_size)
