"""Parts of Transformers: PyTorch and ``numerics`` only, no fairseq."""

from ode_transformer.nn.attention import MultiheadAttention
from ode_transformer.nn.attention_scores import PLAIN_ATTENTION, AttentionChoice, AttentionMask, attention_mask
from ode_transformer.nn.checkpoint_settings import (
    CheckpointSettings,
    SettingsChange,
    checkpoint_settings,
    settings_change,
)
from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.decoding_step import FIXED_STEP, PLAIN_SEARCH, FixedCache, FixedStep, PlainSearch, StepMasks
from ode_transformer.nn.depth_choice import STAGE_PARAMETERS, DepthChoice, depth_schemes
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
from ode_transformer.nn.dropout import WordDropout
from ode_transformer.nn.joint_representation import (
    COMBINATIONS,
    REDUCTIONS,
    Reduction,
    joint_representation,
    joint_width,
    parts_of_batch,
)
from ode_transformer.nn.key_value_cache import (
    Cache,
    Caches,
    EncoderCache,
    KeyValueCache,
    equal_runs,
    select_entries,
)
from ode_transformer.nn.layer import FUNCTIONS, SCOPES, STACKS, BlockId, Layer, LayerId
from ode_transformer.nn.layer_history import HISTORIES, LayerHistory
from ode_transformer.nn.linear import ONEDNN_LINEAR, Linear, linear_map
from ode_transformer.nn.options import Choice, Option, option
from ode_transformer.nn.relative_position import RelativePositionKeys, RelativePositionValues, relative_offsets
from ode_transformer.nn.scheme import build_scheme
from ode_transformer.nn.separable_attention import SOURCE_AXIS, TARGET_AXIS, SeparableAttention
from ode_transformer.nn.sublayers import FeedForward, SubLayer
from ode_transformer.nn.value_residual import VALUE_RESIDUALS, ValueResidual
