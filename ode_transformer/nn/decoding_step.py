"""Masks of decoding steps, of which a step computes only what has changed, and steps that CUDA graphs can repeat.

A fixed step has equal shapes and reads and writes the same memory, as CUDA graphs need. Its cache has room for more
positions than there are: a step writes where its position says and attends to the whole room, and a mask hides the
positions to come. Caches are reordered when a step writes them, so that it contains this, too.

Axes: B batch, H heads, T positions, C channels.
"""

import torch
from torch import Tensor

from ode_transformer.nn.attention import PLAIN_ATTENTION, AttentionChoice, AttentionMask, attention_mask
from ode_transformer.nn.key_value_cache import KeyValueCache, SpareBuffer
from ode_transformer.nn.relative_position import relative_index

FIXED_STEP = "fixed_step"  # key of the inputs among fairseq's incremental states


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


class FixedStep:
    """Inputs of a step, which stay at one place in memory while the shapes stay."""

    def __init__(self) -> None:
        self.room = 0  # positions that the step attends to
        self.tokens = self.position = self.rows = torch.empty(0)

    def set_inputs(self, room: int, tokens: Tensor, position: Tensor, rows: Tensor) -> bool:
        """Prepare the next step.

        :param tokens: the last one of each row, [B, 1]
        :param position: its number, from 0 on, [1]
        :param rows: the row of the last step that each row continues, [B]
        :returns: whether the inputs are where they were
        """
        if (room, tokens.shape) == (self.room, self.tokens.shape):
            for old, new in ((self.tokens, tokens), (self.position, position), (self.rows, rows)):
                old.copy_(new)
            return True
        self.room, self.tokens, self.position, self.rows = room, tokens.clone(), position.clone(), rows.clone()
        return False

    def mask(self, choice: AttentionChoice) -> AttentionMask:
        """Return the mask of self-attention, a variant of which is ``choice``."""
        later = torch.arange(self.room, device=self.position.device) > self.position  # [T]
        clip = choice.max_relative_positions
        return AttentionMask(later[None, None, None], relative_index(self.position, self.room, clip) if clip else None)


class FixedCache(KeyValueCache):
    """Cache whose memory stays while the shapes of the steps stay.

    :param step: inputs of the step that writes it
    """

    def __init__(self, step: FixedStep) -> None:
        super().__init__()
        self._step = step

    def write(self, *added: Tensor) -> None:
        """Reorder the rows, and set one position of the keys and of the values, [1, B, .., H, C/H] each."""
        self.shape = (self._step.room, *added[0].shape[1:])
        earlier = [x.index_select(1, self._step.rows) for x in self._positions]
        if not earlier or self._positions[0].shape != self.shape:
            self._positions = [x.new_zeros(self.shape) for x in added]  # 0, since 0 times a value has to be 0
        for x, old in zip(self._positions, earlier, strict=False):
            x[: len(old)] = old
        for x, y in zip(self._positions, added, strict=True):
            x.index_copy_(0, self._step.position, y)

    def reorder(self, rows: Tensor, spare: SpareBuffer) -> None:
        """Leave it to :meth:`write`, which finds the rows among the inputs of the next step."""
