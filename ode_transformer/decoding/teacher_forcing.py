"""What a translation model predicts at each target position when it is given the right target before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ode_transformer.decoding.binarised import on_device


@dataclass(frozen=True)
class Forced:
    """One batch: B sentences of at most T target tokens, the end symbol included.

    :param numbers: of the sentences in their split, [B]
    :param target: [B, T]
    :param predicted: the most probable tokens, [B, T]
    :param loss: -log p(target), in nats, [B, T]
    :param real: false where the target is padding, [B, T]
    """

    numbers: Tensor
    target: Tensor
    predicted: Tensor
    loss: Tensor
    real: Tensor


@torch.no_grad()
def teacher_forced(model: Any, batches: Iterable[dict[str, Any]], padding_idx: int) -> Iterator[Forced]:
    """Runs fairseq's batches through an encoder–decoder model in evaluation mode; results are on the CPU."""
    device = next(model.parameters()).device
    for batch in batches:
        target, inputs = batch["target"], on_device(batch["net_input"], device)
        scores = model.get_normalized_probs(model(**inputs), log_probs=True)  # B x T x V
        loss = -scores.gather(-1, target.to(device).unsqueeze(-1)).squeeze(-1)
        yield Forced(batch["id"], target, scores.argmax(-1).cpu(), loss.float().cpu(), target.ne(padding_idx))


def cross_entropy(forced: Iterable[Forced]) -> float:
    """Mean of -log p over all target tokens, end symbols included, in nats."""
    total, tokens = 0.0, 0
    for batch in forced:
        total += batch.loss[batch.real].double().sum().item()
        tokens += int(batch.real.sum())
    return total / tokens
