"""Word dropout: whole word embeddings are left out while training."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WordDropout(nn.Module):
    """Zeroes the embeddings of a share ``probability`` of the positions, without rescaling the others.

    Released ODE Transformer code: before positions are added, any symbol, source and target. (The code stores the
    share that it keeps; here, as everywhere in PyTorch, the number is the share that is dropped.)

    :param probability: share of the positions, 0 <= probability < 1
    :raises ValueError: if the probability is outside [0, 1)
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"the word dropout probability must lie in [0, 1), not {probability}")
        self.probability = probability

    def forward(self, embedding: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]; does nothing in evaluation."""
        if not self.training or self.probability == 0.0:
            return embedding
        keep = torch.rand(embedding.shape[:-1], device=embedding.device) >= self.probability
        return embedding * keep.unsqueeze(-1).to(embedding.dtype)
