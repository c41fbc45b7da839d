"""Masks of decoding steps, of which a step computes only what has changed since the last one."""

from __future__ import annotations

import torch
from torch import Tensor

from ode_transformer.nn.attention import PLAIN_ATTENTION, AttentionChoice, AttentionMask, attention_mask
from ode_transformer.nn.relative_position import relative_index


class StepMasks:
    """Masks of one query, the last target position, through the steps of a search."""

    def __init__(self) -> None:
        self._offsets: Tensor | None = None  # relative index of the last of many positions
        self._source: tuple[Tensor, AttentionMask] | None = None  # padding, and its mask

    def over_target(self, padding: Tensor, choice: AttentionChoice = PLAIN_ATTENTION) -> AttentionMask:
        """Return the mask of self-attention.

        :param padding: of the target positions so far, [B, T], True at padding
        :param choice: variant of the attention
        """
        keys, clip = padding.size(1), choice.max_relative_positions
        masked = attention_mask(1, keys, padding.device, padding).masked_pairs  # [B, 1, 1, T]
        if not clip:
            return AttentionMask(masked)
        if self._offsets is None or len(self._offsets) < keys:
            room = 2 * keys + 62
            self._offsets = relative_index(torch.tensor([room - 1], device=padding.device), room, clip)
        return AttentionMask(masked, self._offsets[-keys:])

    def over_source(self, padding: Tensor) -> AttentionMask:
        """Return the mask of attention to the encoder output, the last one if ``padding`` is the same tensor.

        :param padding: [B, S], True at padding
        """
        if self._source is None or self._source[0] is not padding:
            self._source = padding, attention_mask(1, padding.size(1), padding.device, padding)
        return self._source[1]
