"""What makes training and search fast on a GPU: CUDA graphs, flat tensors, a fused loss and a fused Adam.

:func:`record_training` records the steps of a training. Losses, optimizer and search take what they need from the
files of this room.
"""

from ode_transformer.speed.training import record_training

__all__ = ["record_training"]
