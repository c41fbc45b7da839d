"""Where a translation model looks: its attention weights on one sentence pair, the target being given.

An encoder–decoder model shows what its decoder returns as ``extra["attn"]``: how much each target position takes from
each source position. A model with other axes has a method

    attention_maps(src_tokens, src_lengths, prev_output_tokens) -> {name: (axes, weights [B, *axes])}

whose ``axes`` are names of ``AXES``, the last being the one that is attended over. With three of them the first says
under which token, the second whose attention it is: on a source × target grid, ("target", "source", "source") is
attention over the source, which differs from target token to target token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ode_transformer.decoding.binarised import on_device

# The tokens of an axis: those of the source, the target's as they are predicted, and as they are read, one later.
AXES = ("source", "target", "prefix")


@dataclass(frozen=True)
class AttentionMap:
    """One map of one sentence pair.

    :param axes: two or three of ``AXES``
    :param weights: a number for each combination of their positions, on the CPU
    """

    axes: tuple[str, ...]
    weights: Tensor

    def flat(self, query: int) -> tuple[tuple[str, str], Tensor]:
        """Its lines and columns, both axes named; of three axes, the attention of the token ``query`` alone."""
        first, *_, last = self.axes
        return (first, last), self.weights if len(self.axes) == 2 else self.weights[:, query]


@torch.no_grad()
def attention_maps(model: Any, sample: dict[str, Any]) -> dict[str, AttentionMap]:
    """All maps that a model shows.

    :param model: in evaluation mode
    :param sample: fairseq's batch of a single sentence pair, so that nothing is padding
    :return: none if it shows none
    """
    inputs = on_device(sample["net_input"], next(model.parameters()).device)
    if hasattr(model, "attention_maps"):
        shown = model.attention_maps(**inputs)
    else:
        _, extra = model(**inputs)
        weights = (extra or {}).get("attn", [None])[0]
        shown = {} if weights is None else {"attention over the source": (("target", "source"), weights)}
    return {name: AttentionMap(tuple(axes), weights[0].float().cpu()) for name, (axes, weights) in shown.items()}
