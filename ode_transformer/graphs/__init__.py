"""Training recorded as CUDA graphs, and the flat tensors that a recorded training and its optimizer share."""

from ode_transformer.graphs.flat import FlatTensor, flatten, static_gradients

__all__ = ["FlatTensor", "flatten", "static_gradients"]
