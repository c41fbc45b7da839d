"""Parts of Transformers: PyTorch and ``numerics`` only, no fairseq."""

from ode_transformer.nn.attention import MultiheadAttention
from ode_transformer.nn.attention_scores import PLAIN_ATTENTION, AttentionChoice, AttentionMask, attention_mask
from ode_transformer.nn.checkpoint_settings import CheckpointSettings
from ode_transformer.nn.compatibility import StackShape, idle_options, refusal
from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.decoding_step import FIXED_STEP, ROWS_STAY, FixedCache, FixedStep, StepMasks
from ode_transformer.nn.depth_choice import DepthChoice, depth_schemes
from ode_transformer.nn.depth_wise_lstm import LSTM, HiddenSizes, LSTMChoice
from ode_transformer.nn.dropout import WordDropout
from ode_transformer.nn.grid import (
    COMBINATIONS,
    REDUCTIONS,
    Reduction,
    SourceAxisAttention,
    joint_representation,
    joint_width,
    parts_of_batch,
)
from ode_transformer.nn.key_value_cache import Cache, Caches, EncoderCache, KeyValueCache, equal_runs, select_entries
from ode_transformer.nn.layer import STACKS, BlockId, Layer, LayerId
from ode_transformer.nn.layer_history import LayerHistory
from ode_transformer.nn.linear import ONEDNN_LINEAR, Linear, linear_map
from ode_transformer.nn.model_choice import ModelChoice
from ode_transformer.nn.options import Choice, Option, option
from ode_transformer.nn.scheme import build_scheme
from ode_transformer.nn.sublayers import FeedForward, SubLayer
from ode_transformer.nn.value_residual import ValueResidual
