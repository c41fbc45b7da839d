"""fairseq's beam search with the same hypotheses, in fewer passes over the scores of all words.

Per position, fairseq's search reads or writes the scores of all hypotheses and words seven times. Here the best words
of each hypothesis are chosen before its score is added.

Axes: B sentences that are left, k hypotheses of each, R = B · k rows.
"""

import math
from typing import Any

import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ode_transformer.decoding.continuations import Continuations, best_continuations, choose_continuations
from ode_transformer.decoding.recorded_search import ROOM, RecordedSearches, SearchRules
from ode_transformer.nn import ROWS_STAY
from ode_transformer.support.errors import UserError


class Hypotheses:
    """The unfinished hypotheses of a batch.

    :ivar tokens: words so far, the padding behind them, [R, positions]
    :ivar scores: sums of the scores up to each position, [R, positions]
    :ivar attention: over the source, [R, S, positions]; None unless the model reports it
    :ivar vacant: places of a sentence's list from which nothing may end: none, unless it had fewer than k continuations
        that go on, [B, k]
    :ivar sentences: numbers of the sentences that are left, among those of the batch
    :ivar lengths: of their sources, [B]
    :ivar limits: their greatest numbers of words, without the end, [B]
    """

    def __init__(self, lengths: Tensor, beam: int, limits: Tensor, limit: int, first_token: int, padding: int) -> None:
        """Begin every hypothesis with one word; ``beam`` is k, ``limit`` the greatest of ``limits``."""
        self.lengths, self.limits, self.beam, self.sentences = lengths, limits, beam, list(range(len(lengths)))
        rows, device = len(lengths) * beam, lengths.device
        self.tokens = torch.full((rows, limit + 2), padding, device=device)
        self.tokens[:, 0] = first_token
        self.scores = torch.zeros(rows, limit + 1, device=device)
        self.attention: Tensor | None = None
        self.vacant = torch.zeros(len(lengths), beam, dtype=torch.bool, device=device)
        self._first_rows = torch.arange(0, rows, beam, device=device)[:, None]  # of the sentences

    def keep_attention(self, weights: Tensor | None, step: int) -> None:
        """Keep the attention of a step, [R, S]."""
        if weights is None:
            return
        if self.attention is None:
            self.attention = self.scores.new_empty(*weights.shape, self.tokens.size(1))
        self.attention[:, :, step + 1] = weights

    def continuations(self, log_probs: Tensor, step: int) -> Continuations:
        """Return the 2k best continuations of each sentence by the log-probabilities of all words, [R, words]."""
        so_far = self.scores[:, step - 1] if step else None
        return best_continuations(log_probs, so_far, self._first_rows[: len(self.sentences)], self.beam)

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
        """Take sentences, numbered among those that are left, out of the batch; return which of these stay, [B].

        Their rows are there until ``continue_by``, which has to be given continuations of the others alone.
        """
        stays = torch.ones(len(self.sentences), dtype=torch.bool, device=self.vacant.device)
        stays[sentences] = False
        self.vacant, self.lengths, self.limits = self.vacant[stays], self.lengths[stays], self.limits[stays]
        removed = set(sentences)
        self.sentences = [sentence for number, sentence in enumerate(self.sentences) if number not in removed]
        return stays


class BeamSearch(SequenceGenerator):
    """Beam search of one or several models.

    What it does not know is left to fairseq: sampling, constraints, prefixes, penalties of a language model, blocked
    n-grams and suppressed words.
    """

    def __init__(
        self, *arguments: Any, recorded: RecordedSearches | None = None, own_lengths: bool = False, **options: Any
    ) -> None:
        """Build fairseq's generator.

        :param recorded: searches that later ones repeat, of these models
        :param own_lengths: ``max_len_a`` multiplies the length of each sentence, not that of the longest of its batch,
            so that no translation depends on other sentences
        """
        super().__init__(*arguments, **options)
        self.recorded, self.own_lengths = recorded, own_lengths

    @torch.no_grad()
    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        extras = (prefix_tokens, constraints, self.lm_model, self.repeat_ngram_blocker, self.token_indices_to_suppress)
        plain = type(self.search) is search.BeamSearch and all(extra is None for extra in extras)
        hypotheses: list[list[dict[str, Tensor]]]
        if not plain or "src_tokens" not in sample["net_input"]:
            hypotheses = super()._generate(sample, prefix_tokens, constraints, bos_token)
            return hypotheses
        return self._search(sample["net_input"], self.eos if bos_token is None else bos_token)

    def _search(self, net_input: dict[str, Tensor], first_token: int) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence of a batch, the best first; rows are hypotheses, k of a sentence.

        :raises UserError: a sentence has none
        """
        source, lengths = net_input["src_tokens"], net_input.get("src_lengths")
        if lengths is None:
            lengths = (source.ne(self.eos) & source.ne(self.pad)).sum(1)
        limits = self._length_limits(source, lengths)
        shortest_limit, limit = torch.stack(limits.aminmax()).tolist()
        assert self.min_len <= shortest_limit, f"at least {self.min_len} words and at most {shortest_limit}"
        if self.recorded is not None and self._can_be_recorded():
            finalized = self._repeat_recorded(net_input, lengths, limits, limit, first_token)
        else:
            finalized = self._search_growing(net_input, lengths, limits, (shortest_limit, limit), first_token)
        if not all(finalized):
            raise UserError("a line has no translation: the model's scores are not numbers, as where --fp16 overflows")
        scores = iter(torch.stack([h["score"] for of_sentence in finalized for h in of_sentence]).tolist())
        ranked = [sorted((-next(scores), n) for n in range(len(of_sentence))) for of_sentence in finalized]
        return [[of_sentence[n] for _, n in order] for of_sentence, order in zip(finalized, ranked, strict=True)]

    def _encode(self, net_input: dict[str, Tensor]) -> Any:
        """Return the outputs of the models' encoders for k hypotheses of each sentence."""
        source = net_input["src_tokens"]
        rows = torch.arange(len(source), device=source.device).repeat_interleave(self.beam_size)
        with torch.inference_mode():
            return self.model.reorder_encoder_out(self.model.forward_encoder(net_input), rows)

    def _can_be_recorded(self) -> bool:
        """Tell whether all decoders can take steps at one place in memory, whose attention nobody wants to see."""
        decoders = [getattr(model, "decoder", None) for model in self.model.models]
        fixed = all(getattr(decoder, "computes_fixed_steps", False) for decoder in decoders)
        reports = any(getattr(decoder, "reports_alignment", True) for decoder in decoders)
        few_words = self.vocab_size <= 2 * self.beam_size
        return fixed and not (reports or few_words or self.match_source_len) and self.model.has_encoder()

    def _repeat_recorded(
        self, net_input: dict[str, Tensor], lengths: Tensor, limits: Tensor, limit: int, first_token: int
    ) -> list[list[dict[str, Tensor]]]:
        """Search by a recorded search, at the first time by one that is recorded then."""
        assert self.recorded is not None
        source, padded_lengths = self.recorded.pad(net_input["src_tokens"], lengths, self.pad)
        penalty, temperature = self.unk_penalty, self.temperature
        rules = SearchRules(self.beam_size, self.eos, self.pad, self.unk, penalty, self.min_len, temperature)
        capacity = min(-(-(limit + 1) // ROOM) * ROOM, self.max_len)
        search = self.recorded.search(self.model, source, rules, capacity)
        search.run(source, padded_lengths, limits, first_token)
        return search.hypotheses(len(limits), self.len_penalty if self.normalize_scores else 0)

    def _search_growing(
        self, net_input: dict[str, Tensor], lengths: Tensor, limits: Tensor, bounds: tuple[int, int], first_token: int
    ) -> list[list[dict[str, Tensor]]]:
        """Search over caches that grow and that ended sentences leave; ``bounds`` are those of ``limits``."""
        (shortest_limit, limit), k = bounds, self.beam_size
        encoder_outs = self._encode(net_input)
        states: list[dict[str, Any]] = [{ROWS_STAY: True} for _ in self.model.models]
        hypotheses = Hypotheses(lengths, k, limits, limit, first_token, self.pad)
        finalized: list[list[dict[str, Tensor]]] = [[] for _ in range(len(lengths))]
        for step in range(limit + 1):
            at_limit = hypotheses.limits.le(step).repeat_interleave(k) if step >= shortest_limit else None
            with torch.inference_mode():
                tokens = hypotheses.tokens[:, : step + 1]
                log_probs, weights = self.model.forward_decoder(tokens, encoder_outs, states, self.temperature)
                self._forbid(log_probs, step, at_limit)
            hypotheses.keep_attention(weights, step)
            continuations = hypotheses.continuations(log_probs, step)
            ends, some_end, some_nan = self._ends(continuations, hypotheses)
            if some_nan:
                continuations = hypotheses.continuations(log_probs.masked_fill(log_probs.isnan(), -math.inf), step)
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
                    state[ROWS_STAY] = not ended
                self.model.reorder_incremental_state(states, rows)
                if ended:
                    encoder_outs = self.model.reorder_encoder_out(encoder_outs, rows)
        return finalized

    def _ends(self, continuations: Continuations, hypotheses: Hypotheses) -> tuple[Tensor, bool, bool]:
        """Tell which continuations end, [B, 2k], whether one of the first k does, and whether a score is not a number.

        The last two are read at once, since the program waits for a GPU when it reads.
        """
        k = self.beam_size
        ends = continuations.words.eq(self.eos).logical_and_(continuations.totals.ne(-math.inf))
        ends[:, :k].gt_(hypotheses.vacant)  # true, and the place is not vacant
        # Among the best, what is not a number comes first.
        *first_ends, some_nan = torch.cat([ends[:, :k], continuations.totals[:, :1].isnan()], dim=1).any(dim=0).tolist()
        return ends, any(first_ends), some_nan

    def _finalize(
        self,
        step: int,
        ended: Continuations,
        hypotheses: Hypotheses,
        limit: int,
        finalized: list[list[dict[str, Tensor]]],
    ) -> list[int]:
        """Add hypotheses that end, [N], to the results of their sentences.

        :returns: numbers, among the sentences that are left, of those that have ended with them
        """
        left = set(hypotheses.sentences)
        gone = [sentence not in left for sentence in range(len(finalized))]
        newly_ended: list[int] = self.finalize_hypos(
            step,
            ended.rows,
            ended.totals,
            hypotheses.tokens,
            hypotheses.scores,
            finalized,
            gone,
            self.beam_size,
            hypotheses.attention,
            hypotheses.lengths,
            limit,
        )
        return newly_ended

    def _length_limits(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Return the greatest number of words of a hypothesis, without the end, for each sentence, [B]."""
        if self.match_source_len:
            return lengths.max().expand(len(lengths))
        counted = lengths if self.own_lengths else torch.full_like(lengths, source.size(1))
        return (self.max_len_a * counted.double() + self.max_len_b).long().clamp(max=self.max_len - 1)

    def _forbid(self, log_probs: Tensor, step: int, at_limit: Tensor | None) -> None:
        """Give words that cannot follow the score -inf, in place, and the unknown word its penalty.

        Hypotheses of the rows ``at_limit``, [R], have to end.
        """
        log_probs[:, self.pad] = -math.inf
        if self.unk_penalty:
            log_probs[:, self.unk] -= self.unk_penalty
        if at_limit is not None:
            for forbidden in (log_probs[:, : self.eos], log_probs[:, self.eos + 1 :]):
                forbidden.masked_fill_(at_limit[:, None], -math.inf)
        elif step < self.min_len:
            log_probs[:, self.eos] = -math.inf
