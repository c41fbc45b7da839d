"""Training recorded as CUDA graphs, and the flat tensors that a recorded training and its optimizer share."""

from ode_transformer.graphs.flat import FlatTensor, flatten, static_gradients
from ode_transformer.graphs.recording import RECORDERS, is_recording
from ode_transformer.graphs.shapes import round_up_count
from ode_transformer.graphs.training import UNRECORDED_BATCH, RecordedTraining, log_shares, unrecorded_reason
