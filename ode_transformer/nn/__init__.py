"""Parts of Transformers: PyTorch and ``numerics`` only, no fairseq."""

from ode_transformer.nn.attention import KeyValueCache, MultiheadAttention, attention_pattern
from ode_transformer.nn.choice import DepthChoice, build_scheme, refusal
from ode_transformer.nn.layer_history import HISTORIES, LayerHistory
from ode_transformer.nn.relative_position import RelativePositionKeys, relative_index
from ode_transformer.nn.sublayers import FeedForward, Layer, SubLayer
from ode_transformer.nn.word_dropout import WordDropout

__all__ = [
    "HISTORIES",
    "DepthChoice",
    "FeedForward",
    "KeyValueCache",
    "Layer",
    "LayerHistory",
    "MultiheadAttention",
    "RelativePositionKeys",
    "SubLayer",
    "WordDropout",
    "attention_pattern",
    "build_scheme",
    "refusal",
    "relative_index",
]
