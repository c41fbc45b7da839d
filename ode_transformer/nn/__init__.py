"""Parts of Transformers: PyTorch and ``numerics`` only, no fairseq."""

from ode_transformer.nn.attention import KeyValueCache, MultiheadAttention, attention_pattern
from ode_transformer.nn.choice import (
    SCHEMES,
    STAGE_PARAMETERS,
    DepthChoice,
    build_scheme,
    refusal,
    refused_stack,
    swapped,
)
from ode_transformer.nn.depth_wise_lstm import (
    FIRST_CELLS,
    HIDDEN,
    LSTM,
    MERGES,
    SHARES,
    DepthWiseLSTM,
    HiddenSizes,
    LSTMChoice,
)
from ode_transformer.nn.layer_history import HISTORIES, LayerHistory
from ode_transformer.nn.relative_position import RelativePositionKeys, RelativePositionValues, relative_index
from ode_transformer.nn.sublayers import FUNCTIONS, SCOPES, FeedForward, Layer, SubLayer, SubLayerInputs, kind
from ode_transformer.nn.word_dropout import WordDropout

__all__ = [
    "FIRST_CELLS",
    "FUNCTIONS",
    "HIDDEN",
    "HISTORIES",
    "LSTM",
    "MERGES",
    "SCHEMES",
    "SCOPES",
    "SHARES",
    "STAGE_PARAMETERS",
    "DepthChoice",
    "DepthWiseLSTM",
    "FeedForward",
    "HiddenSizes",
    "KeyValueCache",
    "LSTMChoice",
    "Layer",
    "LayerHistory",
    "MultiheadAttention",
    "RelativePositionKeys",
    "RelativePositionValues",
    "SubLayer",
    "SubLayerInputs",
    "WordDropout",
    "attention_pattern",
    "build_scheme",
    "kind",
    "refusal",
    "refused_stack",
    "relative_index",
    "swapped",
]
