"""Depth-wise LSTM Transformer (Xu et al. 2020): layers of attention that an LSTM carries through depth.

In the paper's sizes the hidden computation is as wide as a Transformer's feed-forward network and reads twice as
much, so that a model is larger than its baseline: by 36% outside the embeddings at base size. ``dlstm_matched*`` have
the baseline's size instead.
"""

from __future__ import annotations

from typing import Any

from ode_transformer.models.ode_transformer import SIZES, register
from ode_transformer.nn import LSTM

DLSTM: dict[str, Any] = {
    "encoder_ode_scheme": LSTM,
    "decoder_ode_scheme": LSTM,
    "activation_fn": "gelu",
    # The LSTM normalises what it reads; gradients stay even without further normalisation (docs/depth_wise_lstm.md).
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "max_relative_positions": 0,
    "encoder_layer_history": "none",
    "decoder_layer_history": "none",
}
DLSTM_SIZES = {suffix: SIZES[suffix] for suffix in ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")}


def matched_inner_dim(size: dict[str, Any]) -> int:
    """The inner size f', a multiple of 8, with which the layers have as many parameters as a Transformer's.

    With M and N layers, of 4(d² + d) parameters in an attention and 2d in a normalisation:

        Transformer       M attentions + 2N attentions + (M + N)(2df + f + d) + (2M + 3N) normalisations
        depth-wise LSTM   M attentions + 2N attentions + (M + N)(3df' + 3f' + d) + 2(6d² + 9d)
    """
    d, f = size["encoder_embed_dim"], size["encoder_ffn_embed_dim"]
    encoder, decoder = size["encoder_layers"], size["decoder_layers"]
    layers = encoder + decoder
    left = layers * (2 * d * f + f) + (2 * encoder + 3 * decoder) * 2 * d - 2 * (6 * d * d + 9 * d)
    return 8 * round(left / (layers * (3 * d + 3)) / 8)


for _suffix, _size in DLSTM_SIZES.items():
    register(f"dlstm{_suffix}", DLSTM, _size)
    _inner = matched_inner_dim(_size)
    register(f"dlstm_matched{_suffix}", DLSTM, _size | {f"{s}_ffn_embed_dim": _inner for s in ("encoder", "decoder")})
