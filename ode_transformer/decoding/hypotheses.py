"""The hypotheses of a batch during a beam search: k rows for each sentence that is still in it.

Per position, fairseq's search reads or writes the scores of all hypotheses and words seven times. Here the best words
of each hypothesis are chosen before its score is added, and they are sought only in the blocks of the vocabulary with
the highest maxima: each of the k best words is in one of the k best blocks.

Axes: B sentences that are left, k hypotheses of each, R = B · k rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK = 64  # words


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


class Hypotheses:
    """The unfinished hypotheses of a batch.

    :ivar tokens: words so far, the padding behind them, [R, positions]
    :ivar scores: sums of the scores up to each position, [R, positions]
    :ivar attention: over the source, [R, S, positions]; None unless the model reports it
    :ivar vacant: places of a sentence's list from which nothing may end: all of a sentence that waits until others
        have ended, too; else none, unless it had fewer than k continuations that go on, [B, k]
    :ivar sentences: numbers of the sentences that are left, among those of the batch
    :ivar lengths: of their sources, [B]
    """

    def __init__(self, lengths: Tensor, beam: int, limit: int, first_token: int, padding: int) -> None:
        """Begin every hypothesis with one word.

        :param lengths: of the sources, [B]
        :param beam: k
        :param limit: greatest number of words, without the end
        """
        self.lengths, self.beam, self.sentences = lengths, beam, list(range(len(lengths)))
        rows, device = len(lengths) * beam, lengths.device
        self.tokens = torch.full((rows, limit + 2), padding, device=device)
        self.tokens[:, 0] = first_token
        self.scores = torch.zeros(rows, limit + 1, device=device)
        self.attention: Tensor | None = None
        self.vacant = torch.zeros(len(lengths), beam, dtype=torch.bool, device=device)

    def keep_attention(self, weights: Tensor | None, step: int) -> None:
        """Keep the attention of a step, [R, S]."""
        if weights is None:
            return
        if self.attention is None:
            self.attention = self.scores.new_empty(*weights.shape, self.tokens.size(1))
        self.attention[:, :, step + 1] = weights

    def continuations(self, log_probs: Tensor, step: int) -> Continuations:
        """Return the 2k best continuations of each sentence.

        :param log_probs: of all words, [R, words]
        """
        self.scores = self.scores.to(log_probs.dtype)
        so_far = self.scores[:, step - 1] if step else None
        totals, words, beams = best_continuations(log_probs, so_far, len(self.sentences), self.beam)
        first_rows = torch.arange(len(self.sentences), device=beams.device)[:, None] * self.beam
        return Continuations(totals, words, first_rows + beams)

    def choose(self, found: Continuations, ends: Tensor) -> Continuations:
        """Return the first k continuations that go on; where there are fewer, those that end take the vacant places.

        :param ends: which of them end, [B, n]
        """
        ends = ends.clone()
        ends[:, : self.beam] |= self.vacant
        order = torch.arange(ends.size(1), device=ends.device)
        ranks, chosen = (order + len(order) * ends).topk(self.beam, dim=1, largest=False)  # [B, k]
        self.vacant = ranks >= len(order)
        return Continuations(*(x.gather(1, chosen) for x in found))

    def continue_by(self, chosen: Continuations, step: int) -> Tensor:
        """Continue hypotheses by a word; return the rows that go on, in their new order, [R]."""
        rows = chosen.rows.flatten()
        self.tokens, self.scores = self.tokens.index_select(0, rows), self.scores.index_select(0, rows)
        self.tokens[:, step + 1] = chosen.words.flatten()
        self.scores[:, step] = chosen.totals.flatten()
        if self.attention is not None:
            self.attention = self.attention.index_select(0, rows)
        return rows

    def remove(self, sentences: list[int]) -> Tensor:
        """Take sentences out of the batch; return which of those before stay, [B].

        Their rows are there until ``continue_by``, which has to be given continuations of the others alone.

        :param sentences: their numbers among those that are left
        """
        stays = torch.ones(len(self.sentences), dtype=torch.bool, device=self.vacant.device)
        stays[sentences] = False
        self.vacant, self.lengths = self.vacant[stays], self.lengths[stays]
        removed = set(sentences)
        self.sentences = [sentence for number, sentence in enumerate(self.sentences) if number not in removed]
        return stays


def best_continuations(
    log_probs: Tensor, scores: Tensor | None, sentences: int, beam: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the 2k best continuations of the k hypotheses of each sentence.

    A logarithm that is not a number counts as -inf.

    :param log_probs: [B · k, words]
    :param scores: of the hypotheses, [B · k]; None at the first position, where all k are the same
    :param sentences: B
    :param beam: k
    :returns: score, word, and number of the hypothesis of each continuation, the best first, [B, 2k] each
    """
    if scores is None:
        log_probs = log_probs[::beam]
    per_sentence, words = len(log_probs) // sentences, log_probs.size(1)
    count = min(2 * beam, per_sentence * words - 1)  # the padding is never one
    values, indices = largest(log_probs, min(count, words))  # [B · k, n]
    if bool(values.isnan().any()):  # they would be the largest
        values, indices = largest(log_probs.masked_fill(log_probs.isnan(), -math.inf), min(count, words))
    if scores is not None:
        values = values + scores[:, None]
    totals, positions = values.view(sentences, -1).topk(count)  # [B, 2k]
    return totals, indices.view(sentences, -1).gather(1, positions), positions // values.size(1)


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest numbers of each row and their indices, as ``topk`` does, in any order.

    :param x: [R, N]
    :returns: [R, count] each
    """
    rows, numbers = x.shape
    blocks = numbers // _BLOCK
    if blocks <= 2 * count:
        return x.topk(count)
    within, length = blocks * _BLOCK, count * _BLOCK
    best = x[:, :within].unflatten(1, (blocks, _BLOCK)).amax(-1).topk(count, sorted=False).indices  # [R, count]
    starts = best * _BLOCK + numbers * torch.arange(rows, device=x.device)[:, None]
    # Every run of numbers is a row of the view, so that blocks are selected as rows.
    chosen = x.reshape(-1).unfold(0, _BLOCK, 1).index_select(0, starts.flatten()).view(rows, length)
    values, positions = torch.cat([chosen, x[:, within:]], 1).topk(count)  # of the best blocks, then of the rest
    block = best.gather(1, (positions // _BLOCK).clamp(max=count - 1))
    return values, torch.where(positions < length, block * _BLOCK + positions % _BLOCK, positions - length + within)
