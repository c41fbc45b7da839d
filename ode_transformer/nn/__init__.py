"""Transformers and their parts: PyTorch and ``numerics`` only, no fairseq."""

from ode_transformer.nn.architectures import ARCHITECTURES, MODELS, Architecture, complete_options, read_architecture
from ode_transformer.nn.attention import MultiheadAttention
from ode_transformer.nn.attention_scores import PLAIN_ATTENTION, AttentionChoice, AttentionMask, attention_mask
from ode_transformer.nn.beam_search import BeamSearch, Hypotheses, NoTranslation, SearchOptions, padded_words
from ode_transformer.nn.build_layers import plan_layers, plan_sublayers
from ode_transformer.nn.checkpoint_settings import CheckpointSettings
from ode_transformer.nn.compatibility import StackShape, idle_options, refusal
from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.continuations import (
    Continuations,
    best_continuations,
    best_of_hypotheses,
    choose_continuations,
)
from ode_transformer.nn.decoder import NO_WEIGHTS, Decoder, SearchState, WeightLists
from ode_transformer.nn.decoding_step import FixedCache, FixedStep, StepMasks
from ode_transformer.nn.depth_choice import DepthChoice, depth_schemes
from ode_transformer.nn.depth_wise_lstm import LSTM, HiddenSizes, LSTMChoice
from ode_transformer.nn.dropout import WordDropout
from ode_transformer.nn.embedding import LearnedPositions, SinusoidalPositions
from ode_transformer.nn.encoder import Encoder, EncoderOutput
from ode_transformer.nn.ensemble import Ensemble
from ode_transformer.nn.grid import (
    Reduction,
    SourceAxisAttention,
    joint_representation,
    joint_width,
    parts_of_batch,
)
from ode_transformer.nn.grid_stacks import GridDecoder, SourceEncoder
from ode_transformer.nn.key_value_cache import Cache, Caches, EncoderCache, KeyValueCache, equal_runs, select_entries
from ode_transformer.nn.layer import STACKS, AttentionLayer, BlockId, Layer, LayerId, LayerPlan
from ode_transformer.nn.layer_history import LayerHistory
from ode_transformer.nn.linear import ONEDNN_LINEAR, Linear, linear_map
from ode_transformer.nn.masked_language_model import MaskedWordHead, SegmentEncoder
from ode_transformer.nn.model_choice import ModelChoice
from ode_transformer.nn.model_options import check_choices, read_choices, read_grid, read_sizes
from ode_transformer.nn.options import Choice, Option, option
from ode_transformer.nn.scheme import build_scheme
from ode_transformer.nn.sizes import BEGIN, END, PADDING, UNKNOWN, GridChoice, StackSizes, TransformerSizes
from ode_transformer.nn.stack import Stack, seen_padding
from ode_transformer.nn.sublayers import (
    CrossAttention,
    FeedForward,
    FeedForwardSubLayer,
    SelfAttention,
    SourceAttention,
    SubLayer,
    TargetAttention,
)
from ode_transformer.nn.transformer import LanguageModel, MaskedLanguageModel, Transformer
from ode_transformer.nn.value_residual import ValueResidual
