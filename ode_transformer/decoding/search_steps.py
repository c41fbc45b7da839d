"""Steps of a search: each computes the scores of the next word of every hypothesis."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ode_transformer.nn import FIXED_STEP, PLAIN_SEARCH, FixedStep, PlainSearch

# Logarithms of probabilities [B · k, words], and attention weights [B · k, S] or None.
Scores = tuple[Tensor, Tensor | None]
# Records what a function does with tensors that stay at one place, and returns a function that does it again.
Record = Callable[[Callable[[], Scores]], Callable[[], Scores]]

_BLOCK = 64  # positions between two changes of fixed shapes
_WARM_UP = 2  # steps that compute what later ones find: memory, masks, joined weights
_logger = logging.getLogger(__name__)


class GrowingSteps:
    """Steps over caches that grow by a position each.

    :param model: fairseq's ``EnsembleModel``
    :param encoder_outs: output of each model's encoder, from ``reorder_encoder_out``
    """

    def __init__(self, model: Any, encoder_outs: Any, temperature: float) -> None:
        self.model = model
        self.encoder_outs = encoder_outs
        self.temperature = temperature
        self.search = PlainSearch()
        self.states: list[dict[str, Any]] = [{PLAIN_SEARCH: self.search} for _ in range(model.models_size)]

    def scores(self, tokens: Tensor, position: int) -> Scores:
        """Return the scores of the words that can follow the one at ``position`` of ``tokens``, [B · k, positions]."""
        return self._forward(tokens[:, : position + 1])

    def may_leave(self, position: int) -> bool:
        """Tell whether sentences that have ended may leave after the step at ``position``."""
        return True

    def select(self, rows: Tensor, some_leave: bool) -> None:
        """Continue the rows with the numbers ``rows``, each of its own sentence unless some sentences leave."""
        self.search.rows_stay = not some_leave
        self.model.reorder_incremental_state(self.states, rows)
        if some_leave:
            self.encoder_outs = self.model.reorder_encoder_out(self.encoder_outs, rows)

    def _forward(self, tokens: Tensor) -> Scores:
        log_probs, weights = self.model.forward_decoder(tokens, self.encoder_outs, self.states, self.temperature)
        return log_probs, weights


class FixedSteps(GrowingSteps):
    """Steps of which many in turn have the same shapes and memory, so that one of them can be recorded and repeated.

    :param limit: greatest position of a step
    :param record: None to compute every step anew
    """

    def __init__(
        self, model: Any, encoder_outs: Any, temperature: float, limit: int, record: Record | None = None
    ) -> None:
        super().__init__(model, encoder_outs, temperature)
        self.limit = limit
        self.record = record
        self._inputs = FixedStep()
        self._rows: Tensor | None = None
        self._repeat: Callable[[], Scores] | None = None
        self._computed = 0  # steps since the shapes changed
        for state in self.states:
            state[FIXED_STEP] = self._inputs

    def scores(self, tokens: Tensor, position: int) -> Scores:
        room = min((position // _BLOCK + 1) * _BLOCK, self.limit + 1)
        rows = torch.arange(len(tokens), device=tokens.device) if self._rows is None else self._rows
        number = tokens.new_full((1,), position)
        if not self._inputs.set_inputs(room, tokens[:, position : position + 1], number, rows):
            self._repeat, self._computed = None, 0
        if self._repeat is None and self._computed >= _WARM_UP and self.record is not None:
            try:
                self._repeat = self.record(self._compute)
            except RuntimeError as error:
                _logger.warning("decoding steps are not recorded: %s", error)
                self.record = None
        if self._repeat is not None:
            return self._repeat()
        self._computed += 1
        return self._compute()

    def may_leave(self, position: int) -> bool:
        return (position + 1) % _BLOCK == 0

    def select(self, rows: Tensor, some_leave: bool) -> None:
        self._rows = rows
        if some_leave:
            super().select(rows, some_leave)

    def _compute(self) -> Scores:
        return self._forward(self._inputs.tokens)


def record_cuda_graph(compute: Callable[[], Scores]) -> Callable[[], Scores]:
    """Record the work of a GPU as one CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # a server has other threads
        scores = compute()

    def repeat() -> Scores:
        graph.replay()
        return scores

    return repeat


def choose_steps(
    model: Any,
    encoder_outs: Any,
    temperature: float,
    limit: int,
    device: torch.device,
    fixed_shapes: bool,
) -> GrowingSteps:
    """Return the steps of a search.

    :param fixed_shapes: fix the shapes where all models can compute such steps; a GPU then repeats them as CUDA graphs
    """
    decoders = [getattr(single, "decoder", None) for single in model.models]
    if not fixed_shapes or not all(getattr(decoder, "computes_fixed_steps", False) for decoder in decoders):
        return GrowingSteps(model, encoder_outs, temperature)
    return FixedSteps(model, encoder_outs, temperature, limit, record_cuda_graph if device.type == "cuda" else None)
