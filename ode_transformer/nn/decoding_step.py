"""Masks of decoding steps, of which a step computes only what has changed, and steps that CUDA graphs can repeat.

A fixed step has equal shapes and reads and writes the same memory, as CUDA graphs need. Its cache has room for more
positions than there are: a step writes where its position says and attends to the whole room, and a mask hides the
positions to come. Caches are reordered when a step writes them, so that it contains this, too.

Axes: B batch, H heads, T positions, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ode_transformer.nn.attention_scores import PLAIN_ATTENTION, AttentionChoice, AttentionMask, attention_mask
from ode_transformer.nn.key_value_cache import KeyValueCache
from ode_transformer.nn.relative_position import relative_index

# Keys among fairseq's incremental states
FIXED_STEP = "fixed_step"
PLAIN_SEARCH = "plain_search"


@dataclass
class PlainSearch:
    """Facts about a search that its steps need not find out, as where they would wait for a GPU.

    No position of a hypothesis is padding.

    :param rows_stay: the next reordering replaces each row by one of the same sentence
    """

    rows_stay: bool = True


class StepMasks:
    """Masks of one query, the last target position, through the steps of a search."""

    def __init__(self) -> None:
        self._offsets: Tensor | None = None  # relative index of the last of many positions
        self._source: tuple[Tensor, AttentionMask] | None = None  # padding, and its mask

    def over_target(
        self,
        keys: int,
        device: torch.device,
        padding: Tensor | None = None,
        choice: AttentionChoice = PLAIN_ATTENTION,
    ) -> AttentionMask:
        """Return the mask of self-attention.

        :param keys: T, the number of target positions so far
        :param padding: of them, [B, T], True at padding; None for no padding
        :param choice: variant of the attention
        """
        masked, clip = attention_mask(1, keys, device, padding).masked_pairs, choice.max_relative_positions
        if not clip:
            return AttentionMask(masked)  # [B, 1, 1, T]
        if self._offsets is None or len(self._offsets) < keys:
            room = 2 * keys + 62
            self._offsets = relative_index(torch.tensor([room - 1], device=device), room, clip)
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

    reorders_itself = True

    def __init__(self, step: FixedStep) -> None:
        super().__init__()
        self._step = step

    def write(self, added: Tensor) -> None:
        """Reorder the rows, and set one position of the keys and values, [1, 2, B, .., H, C/H]."""
        shape = (self._step.room, *added.shape[1:])
        earlier = self.positions.index_select(2, self._step.rows) if len(self) else added[:0]
        if self.positions.shape != shape:
            self.positions = added.new_zeros(shape)  # 0, since 0 times a value has to be 0
        self.positions[: len(earlier)] = earlier
        self.positions.index_copy_(0, self._step.position, added)
        self.length = self._step.room
