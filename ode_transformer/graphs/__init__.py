"""Training recorded as CUDA graphs, and the flat tensors that a recorded training and its optimizer share."""

from ode_transformer.graphs.flat import FlatTensor, flatten, static_gradients
from ode_transformer.graphs.recording import RECORDERS, is_recording
from ode_transformer.graphs.shapes import round_up_count
from ode_transformer.graphs.training import UNRECORDED_BATCH, RecordedTraining, log_shares, unrecorded_reason

__all__ = [
    "RECORDERS",
    "UNRECORDED_BATCH",
    "FlatTensor",
    "RecordedTraining",
    "flatten",
    "is_recording",
    "log_shares",
    "round_up_count",
    "static_gradients",
    "unrecorded_reason",
]
