"""Models that decode together, step by step. Axes: R rows."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ode_transformer.nn.decoder import SearchState
from ode_transformer.nn.decoding_step import FixedStep
from ode_transformer.nn.encoder import EncoderOutput


class Ensemble:
    """Models that decode together: the logarithm of the mean of their probabilities.

    :param models: with equal vocabularies
    """

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)

    @property
    def device(self) -> torch.device:
        """Device of the models."""
        return next(self.models[0].parameters()).device

    @property
    def words(self) -> int:
        """Number of words of the target."""
        return int(self.models[0].sizes.target_words)

    def encode(self, source: Tensor) -> list[EncoderOutput | None]:
        """Return the encoder output of each model; None of a language model."""
        return [model.encode(source) for model in self.models]

    def start(self, fixed: FixedStep | None = None) -> list[SearchState]:
        """Return the state of each model at the beginning of a search."""
        states = [SearchState(fixed) for _ in self.models]
        for state in states:
            state.rows_stay = True
        return states

    def step(
        self,
        words: Tensor,
        outputs: Sequence[EncoderOutput | None],
        states: Sequence[SearchState],
        temperature: float = 1.0,
    ) -> Tensor:
        """Return the logarithms of the probabilities of the next word, [R, words], in float32.

        :param words: the last word of each row, [R, 1]
        """
        log_probs = []
        for model, output, state in zip(self.models, outputs, states, strict=True):
            scores = model.step(words, output, state)
            if temperature != 1.0:
                scores = scores / temperature
            log_probs.append(scores.log_softmax(dim=-1, dtype=torch.float32))
        if len(log_probs) == 1:
            return log_probs[0]
        return torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))

    def select(self, outputs: Sequence[EncoderOutput | None], rows: Tensor) -> list[EncoderOutput | None]:
        """Return the encoder outputs of other rows."""
        return [
            None if output is None else output.select(rows, model.encoder.shares_rows)
            for model, output in zip(self.models, outputs, strict=True)
        ]
