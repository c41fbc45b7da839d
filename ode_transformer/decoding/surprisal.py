"""Surprisal of each token of a text: −log₂ p(y_t | y_<t), with the source in a translation model."""

from __future__ import annotations

import math
from typing import Any

import torch

from ode_transformer.decoding.binarised import on_device


@torch.no_grad()
def surprisals(model: Any, sample: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Return the target tokens of a batch of one sentence, and the surprisal of each in bits.

    :param model: in evaluation mode
    :param sample: fairseq's batch of a single sentence, so that nothing is padding
    """
    inputs = on_device(sample["net_input"], next(model.parameters()).device)
    log_probabilities = model.get_normalized_probs(model(**inputs), log_probs=True)[0]  # T x V
    target = sample["target"][0].to(log_probabilities.device)
    bits = -log_probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1) / math.log(2)
    return target.tolist(), bits.float().tolist()
