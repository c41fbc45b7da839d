"""Who may attend to whom, and what is known of each pair before the layers: an addend of the scores and an offset.

Axes: B batch, H heads, T query positions, S key positions. B may be several axes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ode_transformer.nn.options import Choice, option
from ode_transformer.nn.relative_position import one_hot_offsets, relative_offsets

# Addend of a masked pair. With -inf a row of masked pairs alone would be NaN, and half precision has no lower numbers.
MASKED = -30_000.0


@dataclass(frozen=True)
class AttentionChoice(Choice):
    """Variant of self-attention. A new variant is a field here, and its use."""

    max_relative_positions: int = option(
        0, "clip distance on keys; 0 for none", another=3, interval="non-negative", remembered=False, exported=True
    )
    relative_values: bool = option(
        False,
        "relative positions on the values too",
        read_by=lambda choice: choice.attention.max_relative_positions > 0,
        needs="a clip distance (max-relative-positions) above 0",
        remembered=False,
        exported=True,
    )


PLAIN_ATTENTION = AttentionChoice()


@dataclass(frozen=True)
class AttentionMask:
    """Mask and relative positions, made once for all layers of a forward pass.

    :param bias: addend of the scores, 0 or ``MASKED``, which broadcasts to [B, H, T, S]; None for no mask
    :param offsets: relative positions of all pairs, [T, S] or one-hot [T, S, 2k + 1]; None without them
    :param causal: ``bias`` is that of positions that do not attend to later ones, and nothing else
    """

    bias: Tensor | None = None
    offsets: Tensor | None = None
    causal: bool = False


def attention_mask(
    queries: int,
    keys: int,
    device: torch.device,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    choice: AttentionChoice = PLAIN_ATTENTION,
    dtype: torch.dtype = torch.float32,
) -> AttentionMask:
    """Build the mask of ``queries`` positions that are the last of ``keys`` positions.

    :param padding_mask: [.., keys], True at padding; its first axes broadcast to B. None for no padding
    :param causal: no position attends to a later one
    :param dtype: of the queries, as a rule
    """
    masked = None if padding_mask is None else padding_mask[..., None, None, :]  # [.., 1, 1, S]
    is_causal = causal and queries > 1
    if is_causal:
        future = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(keys - queries + 1)  # [T, S]
        masked = future if masked is None else masked | future  # [.., 1, T, S]
    bias = None if masked is None else torch.zeros((), dtype=dtype, device=device).masked_fill(masked, MASKED)
    offsets, clip = None, choice.max_relative_positions
    if clip:
        offsets = relative_offsets(torch.arange(keys - queries, keys, device=device), keys, clip)
        if device.type != "cpu" and torch.is_grad_enabled():
            offsets = one_hot_offsets(offsets, clip, dtype)
    return AttentionMask(bias, offsets, is_causal and padding_mask is None and queries == keys)


def softmax(scores: Tensor) -> Tensor:
    """Return the attention weights, summed in float32 for half precision; of the scores' precision."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(dim=-1)
