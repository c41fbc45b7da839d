"""Attention weights of a translation model on one sentence pair with a given target.

The map of an encoder–decoder model is what its decoder returns as ``extra["attn"]``: the weight of each source position
for each target position. A model with other axes has a method

    attention_maps(src_tokens, src_lengths, prev_output_tokens) -> {name: (axes, weights [B, *axes])}

whose ``axes`` are names of ``AXES``. The last axis is the one that is attended over, and the one before it attends. A
third, first axis selects one of several maps: on a source × target grid, ("target", "source", "source") is attention
of the source over itself, which differs from target token to target token.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.decoding.teacher_forcing import on_device
from ode_transformer.nn import LanguageModel, Transformer

# Tokens along an axis: the source's; the target's as they are predicted; the target's as they are read, shifted by one.
AXES = ("source", "target", "prefix")


class AttentionMap(NamedTuple):
    """Attention weights of one sentence pair.

    :param axes: two or three of ``AXES``
    :param weights: one for each combination of their positions, on the CPU
    """

    axes: tuple[str, ...]
    weights: Tensor


def axis_tokens(row: Mapping[str, Tensor], dictionaries: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the tokens of a translation along each of ``AXES``.

    :param row: numbers of the tokens of ``source`` and ``target``, with the end symbol
    :param dictionaries: of both
    """
    tokens = {side: [dictionary[int(token)] for token in row[side]] for side, dictionary in dictionaries.items()}
    return tokens | {"prefix": tokens["target"][-1:] + tokens["target"][:-1]}


@torch.no_grad()
def attention_maps(model: Any, sample: dict[str, Any]) -> dict[str, AttentionMap]:
    """Return the attention maps of a model in evaluation mode by title; none if it has none.

    :param sample: fairseq's batch of a single sentence pair, so that nothing is padding
    """
    inputs = on_device(sample["net_input"], next(model.parameters()).device)
    maps: Mapping[str, tuple[Sequence[str], Tensor]]
    if isinstance(model, Transformer):
        maps = model.attention_maps(inputs["src_tokens"], inputs["prev_output_tokens"])
    elif isinstance(model, LanguageModel):
        maps = {}
    elif hasattr(model, "attention_maps"):
        maps = model.attention_maps(**inputs)
    else:
        _, extra = model(**inputs)
        weights = (extra or {}).get("attn", [None])[0]
        maps = {} if weights is None else {"attention over the source": (("target", "source"), weights)}
    return {name: AttentionMap(tuple(axes), weights[0].float().cpu()) for name, (axes, weights) in maps.items()}
