"""Continuations of hypotheses by one word, and the choice among them."""

from typing import NamedTuple

import torch
from torch import Tensor


class Continuations(NamedTuple):
    """Continuations of hypotheses by one word, n of each sentence, the best first.

    :param totals: scores, [B, n]
    :param words: [B, n]
    :param rows: of the hypotheses that are continued, [B, n]
    """

    totals: Tensor
    words: Tensor
    rows: Tensor

    def select(self, mask: Tensor) -> "Continuations":
        """Return those at the places, or of the sentences, of a mask."""
        return Continuations(*(x[mask] for x in self))

    def first(self, count: int) -> "Continuations":
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


def best_continuations(log_probs: Tensor, scores: Tensor | None, first_rows: Tensor, beam: int) -> Continuations:
    """Return the 2k best continuations of the k hypotheses of each sentence.

    Those whose score is not a number come first.

    :param log_probs: [B · k, words]
    :param scores: of the hypotheses, [B · k]; None at the first position, where all k are the same
    :param first_rows: row of the first hypothesis of each sentence, [B, 1]
    :param beam: k
    """
    if scores is None:
        log_probs = log_probs[::beam]
    per_sentence, vocabulary = len(log_probs) // len(first_rows), log_probs.size(1)
    count = min(2 * beam, per_sentence * vocabulary - 1)  # the padding is never one
    values, words = log_probs.topk(min(count, vocabulary))  # [B · k, n]
    if scores is not None:
        values = values + scores[:, None]
    return best_of_hypotheses(values, words, first_rows, count)


def best_of_hypotheses(totals: Tensor, words: Tensor, first_rows: Tensor, count: int) -> Continuations:
    """Return the best continuations of each sentence among the best of its hypotheses.

    :param totals: scores, [B · k, n]
    :param words: [B · k, n]
    :param first_rows: row of the first hypothesis of each sentence, [B, 1]
    """
    sentences, n = len(first_rows), totals.size(1)
    totals, positions = totals.view(sentences, -1).topk(count)  # [B, count]
    return Continuations(totals, words.view(sentences, -1).gather(1, positions), first_rows + positions // n)


def draw_words(log_probs: Tensor, scores: Tensor | None, top: int) -> Continuations:
    """Draw one continuation of each hypothesis by the probabilities of the words.

    :param log_probs: [B, words], of one hypothesis for each sentence
    :param scores: of the hypotheses, [B]; None at the first position
    :param top: draw among so many of the most probable words; 0 for all
    """
    values, words = log_probs.topk(min(top, log_probs.size(1))) if top else (log_probs, None)
    drawn = values.exp().multinomial(1)  # [B, 1]
    totals = values.gather(1, drawn)
    if scores is not None:
        totals = totals + scores[:, None]
    rows = torch.arange(len(log_probs), device=log_probs.device)[:, None]
    return Continuations(totals, drawn if words is None else words.gather(1, drawn), rows)
