"""Beam search of one or several models, in few passes over the scores of all words.

The best words of each hypothesis are chosen before its score is added. A hypothesis is what fairseq's search returns:
a dictionary of its ``tokens`` with the end symbol, its ``score`` and its ``positional_scores``.

Axes: B sentences that are left, k hypotheses of each, R = B · k rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.nn.continuations import Continuations, best_continuations, choose_continuations, draw_words
from ode_transformer.nn.encoder import EncoderOutput
from ode_transformer.nn.ensemble import Ensemble
from ode_transformer.nn.sizes import END, PADDING, UNKNOWN

# Hypotheses of each sentence, the best first
Hypotheses = list[list[dict[str, Tensor]]]

ROOM = 64  # positions; recorded searches have room for a multiple


class NoTranslation(ValueError):
    """A sentence has no hypothesis, because scores are not numbers."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search.

    :param beam: k
    :param length_penalty: power of a hypothesis' number of words that divides the sum of its scores
    :param max_len_a: a hypothesis has at most a·S + b words, without the end, for a source of S tokens with its end
    :param min_len: the least number of words, without the end
    :param unknown_penalty: subtracted from the score of the unknown word
    :param temperature: divides the scores of words
    :param sampling: draw words in place of a search; ``beam`` is 1
    :param sampling_topk: draw among the K most probable words; 0 for all
    """

    beam: int = 5
    length_penalty: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    min_len: int = 1
    unknown_penalty: float = 0.0
    temperature: float = 1.0
    sampling: bool = False
    sampling_topk: int = 0


class Rows:
    """The unfinished hypotheses of a batch.

    :ivar tokens: words so far, the padding behind them, [R, positions]
    :ivar scores: sums of the scores up to each position, [R, positions]
    :ivar vacant: places of a sentence's list from which nothing may end: none, unless it had fewer than k continuations
        that go on, [B, k]
    :ivar sentences: numbers of the sentences that are left, among those of the batch
    :ivar limits: their greatest numbers of words, without the end, [B]
    """

    def __init__(self, beam: int, limits: Tensor, limit: int, first_token: int) -> None:
        """Begin every hypothesis with one word; ``beam`` is k, ``limit`` the greatest of ``limits``."""
        self.limits, self.beam, self.sentences = limits, beam, list(range(len(limits)))
        rows, device = len(limits) * beam, limits.device
        self.tokens = torch.full((rows, limit + 2), PADDING, device=device)
        self.tokens[:, 0] = first_token
        self.scores = torch.zeros(rows, limit + 1, device=device)
        self.vacant = torch.zeros(len(limits), beam, dtype=torch.bool, device=device)
        self._first_rows = torch.arange(0, rows, beam, device=device)[:, None]  # of the sentences

    @property
    def first_rows(self) -> Tensor:
        """Row of the first hypothesis of each sentence, [B, 1]."""
        return self._first_rows[: len(self.sentences)]

    def continue_by(self, chosen: Continuations, step: int) -> Tensor:
        """Continue hypotheses by a word; return the rows that go on, in their new order, [R]."""
        rows = chosen.rows.flatten()
        self.tokens, self.scores = self.tokens.index_select(0, rows), self.scores.index_select(0, rows)
        self.tokens[:, step + 1] = chosen.words.flatten()
        self.scores[:, step] = chosen.totals.flatten()
        return rows

    def remove(self, sentences: list[int]) -> Tensor:
        """Take sentences, numbered among those that are left, out of the batch; return which of these stay, [B].

        Their rows are there until ``continue_by``, which has to be given continuations of the others alone.
        """
        stays = torch.ones(len(self.sentences), dtype=torch.bool, device=self.vacant.device)
        stays[sentences] = False
        self.vacant, self.limits = self.vacant[stays], self.limits[stays]
        removed = set(sentences)
        self.sentences = [sentence for number, sentence in enumerate(self.sentences) if number not in removed]
        return stays


class BeamSearch:
    """Search of the best translations, or continuations of a language model.

    :param models: with equal vocabularies, in evaluation mode
    :param recorded: searches that a GPU repeats; None to compute every step anew
    """

    def __init__(self, models: Sequence[nn.Module], options: SearchOptions, recorded: Any = None) -> None:
        self.ensemble, self.options, self.recorded = Ensemble(models), options, recorded
        self.beam = 1 if options.sampling else min(options.beam, self.ensemble.words - 1)
        self.most = min(int(model.max_target_positions) for model in self.ensemble.models)

    @torch.no_grad()
    def search(self, source: Tensor, first_token: int = END) -> Hypotheses:
        """Return the hypotheses of each text, the best first.

        :param source: numbers of words, [B, S], with the end symbol; padding on one side
        :raises NoTranslation: a text has none
        """
        limits = self._limits(source.ne(PADDING).sum(1))
        if self.recorded is not None and self.can_be_recorded:
            return self._ranked(self._repeat_recorded(source, limits, first_token))
        return self._ranked(self._search_growing(self._encode(source), limits, first_token))

    @torch.no_grad()
    def continue_texts(self, texts: Tensor, first_token: int = END) -> Hypotheses:
        """Return continuations of texts by language models, the best first; each begins with its text.

        :param texts: numbers of words of texts of one length, without an end, [B, T]
        :raises NoTranslation: a text has none
        """
        lengths = torch.full((len(texts),), texts.size(1) + 1, device=texts.device)
        limits = (self._limits(lengths) + texts.size(1)).clamp(max=self.most - 1)
        outputs: list[EncoderOutput | None] = [None] * len(self.ensemble.models)
        return self._ranked(self._search_growing(outputs, limits, first_token, texts))

    @property
    def can_be_recorded(self) -> bool:
        """True if all models can take steps at one place in memory."""
        fixed = all(model.decoder.computes_fixed_steps and model.attends for model in self.ensemble.models)
        return fixed and self.ensemble.words > 2 * self.beam and not self.options.sampling

    def _ranked(self, finalized: Hypotheses) -> Hypotheses:
        if not all(finalized):
            raise NoTranslation(
                "a line has no translation: the model's scores are not numbers, as where --fp16 overflows"
            )
        scores = iter(torch.stack([h["score"] for of_sentence in finalized for h in of_sentence]).tolist())
        ranked = [sorted((-next(scores), n) for n in range(len(of_sentence))) for of_sentence in finalized]
        return [[of_sentence[n] for _, n in order] for of_sentence, order in zip(finalized, ranked, strict=True)]

    def _limits(self, lengths: Tensor) -> Tensor:
        """Return the greatest number of words of a hypothesis, without the end, for each text, [B]."""
        options = self.options
        return (options.max_len_a * lengths.double() + options.max_len_b).long().clamp(max=self.most - 1)

    def _encode(self, source: Tensor) -> list[EncoderOutput | None]:
        """Return the outputs of the encoders for k hypotheses of each sentence."""
        rows = torch.arange(len(source), device=source.device).repeat_interleave(self.beam)
        with torch.inference_mode():
            return self.ensemble.select(self.ensemble.encode(source), rows)

    def _repeat_recorded(self, source: Tensor, limits: Tensor, first_token: int) -> Hypotheses:
        """Search by a recorded search, at the first time by one that is recorded then."""
        padded = self.recorded.pad(source)
        capacity = min(-(-(int(limits.max()) + 1) // ROOM) * ROOM, self.most)
        search = self.recorded.search(self.ensemble, padded, self.options, self.beam, capacity)
        search.run(padded, limits, first_token)
        hypotheses: Hypotheses = search.hypotheses(len(limits), self.options.length_penalty)
        return hypotheses

    def _search_growing(
        self,
        outputs: list[EncoderOutput | None],
        limits: Tensor,
        first_token: int,
        prefix: Tensor | None = None,
    ) -> Hypotheses:
        """Search over caches that grow and that ended sentences leave.

        :param prefix: words with which the hypotheses of each sentence begin, [B, P]; None for none
        """
        shortest_limit, limit = torch.stack(limits.aminmax()).tolist()
        k, begin = self.beam, 0 if prefix is None else prefix.size(1)
        states = self.ensemble.start()
        hypotheses = Rows(k, limits, limit, first_token)
        finalized: Hypotheses = [[] for _ in range(len(limits))]
        for step in range(limit + 1):
            so_far = hypotheses.scores[:, step - 1] if step else None
            at_limit = hypotheses.limits.le(step).repeat_interleave(k) if step >= shortest_limit else None
            with torch.inference_mode():
                words = hypotheses.tokens[:, step : step + 1]
                log_probs = self.ensemble.step(words, outputs, states, self.options.temperature)
                if step >= begin:
                    self._forbid(log_probs, step, at_limit)
            if prefix is not None and step < begin:
                given = prefix[:, step].repeat_interleave(k)  # [R]
                scores = log_probs.gather(1, given[:, None])[:, 0]
                hypotheses.tokens[:, step + 1] = given
                hypotheses.scores[:, step] = scores if so_far is None else so_far + scores
                continue
            continuations = self._continuations(log_probs, so_far, hypotheses, step == begin)
            ends, some_end, some_nan = self._ends(continuations, hypotheses)
            if some_nan:
                numbers = log_probs.masked_fill(log_probs.isnan(), -math.inf)
                continuations = self._continuations(numbers, so_far, hypotheses, step == begin)
                ends, some_end, _ = self._ends(continuations, hypotheses)
            ended: list[int] = []  # numbers, among the sentences that are left
            if some_end:
                ended = self._finalize(step, continuations.first(k).select(ends[:, :k]), hypotheses, limit, finalized)
            if len(ended) == len(hypotheses.sentences):
                break
            chosen, hypotheses.vacant = choose_continuations(continuations, ends, hypotheses.vacant)
            if ended:
                chosen = chosen.select(hypotheses.remove(ended))
            rows = hypotheses.continue_by(chosen, step)
            with torch.inference_mode():
                for state in states:
                    state.rows_stay = not ended
                    state.reorder(rows)
                if ended:
                    outputs = self.ensemble.select(outputs, rows)
        return finalized

    def _continuations(
        self, log_probs: Tensor, so_far: Tensor | None, hypotheses: Rows, are_equal: bool
    ) -> Continuations:
        """Return the best continuations, or drawn ones.

        :param are_equal: the hypotheses of a sentence do not differ yet
        """
        if self.options.sampling:
            return draw_words(log_probs, so_far, self.options.sampling_topk)
        if not are_equal:
            return best_continuations(log_probs, so_far, hypotheses.first_rows, self.beam)
        best = best_continuations(log_probs, None, hypotheses.first_rows, self.beam)
        return best if so_far is None else best._replace(totals=best.totals + so_far[:: self.beam, None])

    def _ends(self, continuations: Continuations, hypotheses: Rows) -> tuple[Tensor, bool, bool]:
        """Tell which continuations end, [B, 2k], whether one of the first k does, and whether a score is not a number.

        The last two are read at once, since the program waits for a GPU when it reads.
        """
        k = self.beam
        ends = continuations.words.eq(END).logical_and_(continuations.totals.ne(-math.inf))
        ends[:, :k].gt_(hypotheses.vacant)  # true, and the place is not vacant
        # Among the best, what is not a number comes first.
        *first_ends, some_nan = torch.cat([ends[:, :k], continuations.totals[:, :1].isnan()], dim=1).any(dim=0).tolist()
        return ends, any(first_ends), some_nan

    def _finalize(
        self, step: int, ended: Continuations, hypotheses: Rows, limit: int, finalized: Hypotheses
    ) -> list[int]:
        """Add hypotheses that end, [N], to the results of their sentences.

        :returns: numbers, among the sentences that are left, of those that have ended with them
        """
        tokens = hypotheses.tokens.index_select(0, ended.rows)[:, 1 : step + 2]
        tokens[:, step] = END
        sums = hypotheses.scores.index_select(0, ended.rows)[:, : step + 1]
        sums[:, step] = ended.totals
        positional = torch.cat([sums[:, :1], sums[:, 1:] - sums[:, :-1]], dim=1)
        scores = ended.totals / (step + 1) ** self.options.length_penalty
        places = (ended.rows // self.beam).tolist()  # of the sentences, among those that are left
        for number, place in enumerate(places):
            of_sentence = finalized[hypotheses.sentences[place]]
            if len(of_sentence) < self.beam:
                of_sentence.append(
                    {"tokens": tokens[number], "score": scores[number], "positional_scores": positional[number]}
                )
        full = (place for place in places if len(finalized[hypotheses.sentences[place]]) == self.beam or step == limit)
        return sorted(set(full))

    def _forbid(self, log_probs: Tensor, step: int, at_limit: Tensor | None) -> None:
        """Give words that cannot follow the score -inf, in place, and the unknown word its penalty.

        :param at_limit: rows whose hypotheses have to end, [R]; None for none
        """
        log_probs[:, PADDING] = -math.inf
        if self.options.unknown_penalty:
            log_probs[:, UNKNOWN] -= self.options.unknown_penalty
        if at_limit is not None:
            for forbidden in (log_probs[:, :END], log_probs[:, END + 1 :]):
                forbidden.masked_fill_(at_limit[:, None], -math.inf)
        elif step < self.options.min_len:
            log_probs[:, END] = -math.inf


@torch.no_grad()
def padded_words(hypotheses: Hypotheses) -> Tensor:
    """Return the words of the best hypotheses with their end, and padding behind them, [B, T]."""
    best = [of_sentence[0]["tokens"] for of_sentence in hypotheses]
    return nn.utils.rnn.pad_sequence(best, batch_first=True, padding_value=PADDING)
