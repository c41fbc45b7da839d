"""Steps of a search: the scores of the next word of every hypothesis, and the choice among its continuations."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.nn import PLAIN_SEARCH, PlainSearch

# Logarithms of probabilities [B · k, words], and attention weights [B · k, S] or None.
Scores = tuple[Tensor, Tensor | None]


class Continuations(NamedTuple):
    """Continuations of hypotheses by one word, n of each sentence, the best first.

    :param totals: scores, [B, n]
    :param words: [B, n]
    :param rows: of the hypotheses that are continued, [B, n]
    """

    totals: Tensor
    words: Tensor
    rows: Tensor

    def select(self, mask: Tensor) -> Continuations:
        """Return those at the places, or of the sentences, of a mask."""
        return Continuations(*(x[mask] for x in self))

    def first(self, count: int) -> Continuations:
        """Return the first ``count`` of each sentence."""
        return Continuations(*(x[:, :count] for x in self))


def choose_continuations(continuations: Continuations, ends: Tensor, vacant: Tensor) -> tuple[Continuations, Tensor]:
    """Return the first k continuations that go on, and the places that those have taken that do not, [B, k].

    :param ends: which continuations end, [B, n]; changed in place
    :param vacant: places from which nothing may end, [B, k]
    """
    beam, count = vacant.size(1), ends.size(1)
    ends[:, :beam].logical_or_(vacant)
    order = torch.arange(count, device=ends.device)
    ranks, chosen = torch.add(order, ends, alpha=count).topk(beam, dim=1, largest=False)  # [B, k]
    return Continuations(*(x.gather(1, chosen) for x in continuations)), ranks >= count


def best_continuations(
    log_probs: Tensor, scores: Tensor | None, sentences: int, beam: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the 2k best continuations of the k hypotheses of each sentence.

    Those whose score is not a number come first.

    :param log_probs: [B · k, words]
    :param scores: of the hypotheses, [B · k]; None at the first position, where all k are the same
    :param sentences: B
    :param beam: k
    :returns: score, word, and number of the hypothesis of each continuation, the best first, [B, 2k] each
    """
    if scores is None:
        log_probs = log_probs[::beam]
    per_sentence, vocabulary = len(log_probs) // sentences, log_probs.size(1)
    count = min(2 * beam, per_sentence * vocabulary - 1)  # the padding is never one
    values, indices = log_probs.topk(min(count, vocabulary))  # [B · k, n]
    if scores is not None:
        values = values + scores[:, None]
    totals, positions = values.view(sentences, -1).topk(count)  # [B, 2k]
    return totals, indices.view(sentences, -1).gather(1, positions), positions // values.size(1)


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
        log_probs, weights = self.model.forward_decoder(
            tokens[:, : position + 1], self.encoder_outs, self.states, self.temperature
        )
        return log_probs, weights

    def select(self, rows: Tensor, some_leave: bool) -> None:
        """Continue the rows with the numbers ``rows``, each of its own sentence unless some sentences leave."""
        self.search.rows_stay = not some_leave
        self.model.reorder_incremental_state(self.states, rows)
        if some_leave:
            self.encoder_outs = self.model.reorder_encoder_out(self.encoder_outs, rows)
