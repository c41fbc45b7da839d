"""Word dropout: zeroes whole word embeddings while training."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WordDropout(nn.Module):
    """Zeroes the embeddings of random positions, without rescaling the others.

    As in the released ODE Transformer code, it acts before positions are added, on any symbol of source and target.
    That code stores the share that it keeps; here, as everywhere in PyTorch, the number is the share that is zeroed.

    :param probability: share of the positions that are zeroed, 0 <= probability < 1
    :raises ValueError: if the probability is outside [0, 1)
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"the word dropout probability must lie in [0, 1), not {probability}")
        self.probability = probability

    def forward(self, embedding: Tensor) -> Tensor:
        """Zero positions in training, [B, T, C] -> [B, T, C]."""
        if not self.training or self.probability == 0.0:
            return embedding
        keep = torch.rand(embedding.shape[:-1], device=embedding.device) >= self.probability  # [B, T]
        return embedding * keep.unsqueeze(-1).to(embedding.dtype)
