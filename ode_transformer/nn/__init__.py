"""Parts of Transformers: PyTorch and ``numerics`` only, no fairseq."""

from ode_transformer.nn.attention import KeyValueCache, MultiheadAttention, attention_pattern
from ode_transformer.nn.choice import STAGE_PARAMETERS, DepthChoice, build_scheme, refusal, refused_stack, swapped
from ode_transformer.nn.layer_history import HISTORIES, LayerHistory
from ode_transformer.nn.relative_position import RelativePositionKeys, RelativePositionValues, relative_index
from ode_transformer.nn.sublayers import FUNCTIONS, SCOPES, FeedForward, Layer, SubLayer, SubLayerInputs, kind
from ode_transformer.nn.word_dropout import WordDropout

__all__ = [
    "FUNCTIONS",
    "HISTORIES",
    "SCOPES",
    "STAGE_PARAMETERS",
    "DepthChoice",
    "FeedForward",
    "KeyValueCache",
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
