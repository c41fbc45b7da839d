"""Surprisal of each token of a text: −log₂ p(y_t | y_<t), with the source in a translation model."""

from __future__ import annotations

import math
from typing import Any

from ode_transformer.decoding.teacher_forcing import predict_tokens


def surprisals(model: Any, sample: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Return the target tokens of a batch of one sentence, and the surprisal of each in bits.

    :param model: in evaluation mode
    :param sample: fairseq's batch of a single sentence, so that nothing is padding
    """
    (predictions,) = predict_tokens(model, [sample], padding_idx=-1)
    return predictions.target[0].tolist(), (predictions.loss[0] / math.log(2)).tolist()
