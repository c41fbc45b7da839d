"""Beam search whose whole step is one CUDA graph: scores, choice of words, reordering, and hypotheses that end.

The first step's graph encodes the sources as well.

All of it stays at one place in memory. Batches are padded to a few shapes, and batches of one shape share their graphs.
The program looks every few steps whether all sentences have ended.

Axes: B sentences, k hypotheses of each, R = B · k rows, S source positions, L target positions.
"""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ode_transformer.nn import (
    END,
    PADDING,
    UNKNOWN,
    Continuations,
    EncoderCache,
    EncoderOutput,
    Ensemble,
    FixedStep,
    Hypotheses,
    KeyValueCache,
    SearchOptions,
    best_of_hypotheses,
    choose_continuations,
)
from ode_transformer.speed import recording, search_attention
from ode_transformer.speed.shapes import round_up_count

BLOCK = 16  # positions; within a block all steps attend to as many
_MULTIPLE = 8  # of the padded lengths of sources
_LOOK = 8  # steps between two looks whether all sentences have ended
_MOST = 16  # searches that are kept
_logger = logging.getLogger(__name__)


class RecordedSearches:
    """Searches by the shape of their batches, the latest ones."""

    def __init__(self) -> None:
        self._searches: OrderedDict[Any, RecordedSearch] = OrderedDict()

    @staticmethod
    def pad(source: Tensor) -> Tensor:
        """Return a batch of the shape that searches have: the first sentence again, and padding in front of all."""
        rows, width = round_up_count(len(source)), -(-source.size(1) // _MULTIPLE) * _MULTIPLE
        sentences = torch.zeros(rows, dtype=torch.long, device=source.device)
        sentences[: len(source)] = torch.arange(len(source), device=source.device)
        front = source.new_full((rows, width - source.size(1)), PADDING)
        return torch.cat([front, source[sentences]], dim=1)

    def search(
        self, models: Ensemble, source: Tensor, options: SearchOptions, beam: int, capacity: int
    ) -> "RecordedSearch":
        """Return the search for sources of this shape, built if it is new.

        :param models: the same at every call
        :param source: from :meth:`pad`, [B, S]
        :param beam: k
        :param capacity: L, the positions that there is room for
        """
        key = source.shape, options, beam, capacity
        if key not in self._searches:
            self._searches[key] = RecordedSearch(models, source, options, beam, capacity)
        self._searches.move_to_end(key)
        if len(self._searches) > _MOST:
            self._searches.popitem(last=False)
        return self._searches[key]


class RecordedSearch:
    """A search in memory that stays at one place.

    :param source: a batch of the shape that the search is for, [B, S]
    """

    def __init__(self, models: Ensemble, source: Tensor, options: SearchOptions, beam: int, capacity: int) -> None:
        self.models, self.options, self.beam = models, options, beam
        device, k, B = source.device, beam, len(source)
        rows = B * k
        self.source = source.clone()
        self.encoder_outs: list[EncoderOutput | None] = []
        self.inputs = FixedStep(rows, capacity, device, search_attention.choose(device))
        self.states = models.start(self.inputs)
        self.tokens = torch.full((rows, capacity + 1), PADDING, device=device)
        self.scores = torch.zeros(rows, capacity, device=device)  # sums up to each position
        # Before the first word the hypotheses of a sentence are the same.
        first_scores = torch.full((B, k), -math.inf, device=device)
        first_scores[:, 0] = 0
        self.first_scores = first_scores.flatten()
        self.first_rows = torch.arange(0, rows, k, device=device)[:, None]
        self.limits = torch.zeros(B, dtype=torch.long, device=device)
        self.vacant = torch.zeros(B, k, dtype=torch.bool, device=device)
        self.waits = torch.zeros(B, dtype=torch.bool, device=device)  # sentences that have ended
        # Hypotheses that have ended, k of each sentence; slot k takes what there is no room for.
        self.ended = torch.zeros(B, dtype=torch.long, device=device)  # their number
        self.ended_tokens = torch.zeros(B, k + 1, capacity + 1, dtype=torch.long, device=device)
        self.ended_scores = torch.zeros(B, k + 1, capacity, device=device)
        self.ended_lengths = torch.zeros(B, k + 1, dtype=torch.long, device=device)
        # Then the best words are those with the greatest scores, whatever the others have.
        self.reads_scores = len(models.models) == 1 and not options.unknown_penalty and options.temperature == 1
        self._replays: dict[tuple[bool, int, bool], Callable[[], None]] = {}  # first step, block, odd step
        self._recorder = recording.build_recorder(device)

    def run(self, source: Tensor, limits: Tensor, first_token: int) -> None:
        """Search for a batch from :meth:`RecordedSearches.pad`.

        :param limits: the greatest number of words of each sentence, without the end; further sentences are padding
        """
        with torch.inference_mode():
            self._begin(source, limits, first_token)
            for step in range(int(limits.max()) + 1):
                self._take_step(step)
                if (step + 1) % _LOOK == 0 and bool(self.waits.all()):
                    break

    def hypotheses(self, count: int, length_power: float) -> Hypotheses:
        """Return the hypotheses of the first ``count`` sentences, on the CPU.

        :param length_power: power of a hypothesis' number of words that divides the sum of its scores
        """
        k = self.beam
        lengths = self.ended_lengths[:count, :k].cpu()  # [count, k], as all below
        found = torch.arange(k) < self.ended[:count, None].cpu()
        tokens, sums = self.ended_tokens[:count, :k, 1:].cpu(), self.ended_scores[:count, :k].cpu()
        powers = torch.tensor([1.0, *(length**length_power for length in range(1, sums.size(2) + 1))])
        scores = sums.gather(2, (lengths - 1).clamp(min=0)[..., None])[..., 0] / powers[lengths]
        own_scores = torch.cat([sums[..., :1], sums.diff(dim=2)], dim=2)
        is_word = found[..., None] & (torch.arange(sums.size(2)) < lengths[..., None])
        sizes = lengths[found].tolist()
        # Each of these takes all hypotheses of the batch at once: Python's time for single ones is that of many steps.
        parts = zip(tokens[is_word].split(sizes), scores[found].unbind(), own_scores[is_word].split(sizes), strict=True)
        names = "tokens", "score", "positional_scores"
        all_found = (dict(zip(names, part, strict=True)) for part in parts)
        return [[next(all_found) for _ in range(number)] for number in found.sum(1).tolist()]

    def _begin(self, source: Tensor, limits: Tensor, first_token: int) -> None:
        self.source.copy_(source)
        self._clear(KeyValueCache)
        self.inputs.begin(first_token)
        self.tokens.fill_(PADDING)
        self.tokens[:, 0] = first_token
        self.limits.zero_()[: len(limits)] = limits
        self.waits.fill_(True)[: len(limits)] = False
        self.vacant.copy_(self.waits[:, None])
        self.ended.zero_()

    def _clear(self, kind: type[KeyValueCache | EncoderCache]) -> None:
        for state in self.states:
            state.caches.forget(kind)

    def _take_step(self, step: int) -> None:
        """Replay a step, or record it where the memory that it uses is there: that of the first step is made by it."""
        block, is_odd, is_new = step // BLOCK, step % 2 == 1, not self.encoder_outs
        self.inputs.room, self.inputs.is_odd = min((block + 1) * BLOCK, self.inputs.capacity), is_odd
        key, compute = (step == 0, block, is_odd), self._compute if step else self._compute_first
        if key not in self._replays and self._recorder is not None and not is_new:
            try:
                self._replays[key] = self._recorder.record_inference(compute)
            except RuntimeError as error:
                _logger.warning("decoding steps are not recorded: %s", error)
                self._recorder = None
        self._replays.get(key, compute)()

    def _compute_first(self) -> None:
        """Encode the sources, and take the first step."""
        outputs = self.models.encode(self.source)
        if not self.encoder_outs:
            self.encoder_outs = outputs
        for old, new in zip(_tensors(self.encoder_outs), _tensors(outputs), strict=True):
            if old is not new:
                old.copy_(new)
        self._clear(EncoderCache)
        self._compute()

    def _compute(self) -> None:
        """Take a step; everything stays in place, and nothing looks at a value."""
        position, k = self.inputs.position, self.beam
        last_scores = self.scores.index_select(1, (position - 1).clamp(min=0))[:, 0]
        so_far = torch.where(position > 0, last_scores, self.first_scores)  # [R]
        log_probs, words = self._best_words(position, 2 * k)
        totals = log_probs + so_far[:, None]
        totals.masked_fill_(totals.isnan(), -math.inf)  # of a sentence whose scores are not numbers
        continuations = best_of_hypotheses(totals, words, self.first_rows, 2 * k)
        ends = continuations.words.eq(END).logical_and_(continuations.totals.ne(-math.inf))  # [B, 2k]
        ends[:, :k].gt_(self.vacant)  # true, and the place is not vacant
        self._keep_ended(continuations.first(k), ends[:, :k], position)
        self.vacant.logical_or_(self.waits[:, None])
        chosen, vacant = choose_continuations(continuations, ends, self.vacant)
        self.vacant.copy_(vacant.logical_or_(self.waits[:, None]))
        rows, next_words = chosen.rows.flatten(), chosen.words.flatten()
        for table in (self.tokens, self.scores):
            table.copy_(table.index_select(0, rows))
        self.tokens.index_copy_(1, position + 1, next_words[:, None])
        self.scores.index_copy_(1, position, chosen.totals.view(-1, 1))
        self.inputs.advance(next_words[:, None], rows)

    def _best_words(self, position: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities, in float32, and the numbers of the best words of each row, [R, count] each.

        The words of a row are ranked by their logits, of which log Σ exp is subtracted afterwards.
        """
        options, words, log_sums = self.options, self.inputs.tokens, None
        if self.reads_scores:
            scores = self.models.models[0].step(words, self.encoder_outs[0], self.states[0])  # [R, V]
            # log Σ exp z by the likeliest word: its p is at least 1 / V, so that the logarithm is exact.
            greatest = scores.softmax(dim=-1, dtype=torch.float32).amax(dim=-1, keepdim=True)
            log_sums = scores.amax(dim=-1, keepdim=True).float() - greatest.log()  # [R, 1]
        else:
            scores = self.models.step(words, self.encoder_outs, self.states, options.temperature)
        scores[:, PADDING] = -math.inf
        if options.unknown_penalty:
            scores[:, UNKNOWN] -= options.unknown_penalty
        if options.min_len:
            scores[:, END].masked_fill_(position < options.min_len, -math.inf)
        values, words = scores.topk(count)
        # At its limit a hypothesis has to end: its end comes first, and the others have no probability.
        end = torch.full_like(values, -math.inf).index_copy_(1, position.new_zeros(1), scores[:, END, None])
        at_limit = (position >= self.limits).repeat_interleave(self.beam)[:, None]  # [R, 1]
        values, words = torch.where(at_limit, end, values).float(), words.masked_fill(at_limit, END)
        return values if log_sums is None else values - log_sums, words

    def _keep_ended(self, continuations: Continuations, ends: Tensor, position: Tensor) -> None:
        """Keep the hypotheses that end, ``ends`` [B, k], at most k of a sentence, which has then ended."""
        k = self.beam
        slots = torch.where(ends, self.ended[:, None] + ends.cumsum(1) - 1, k).clamp_(max=k)  # [B, k]
        tokens = self.tokens[continuations.rows].index_fill_(2, position + 1, END)  # [B, k, L + 1]
        scores = self.scores[continuations.rows].index_copy_(2, position, continuations.totals[..., None])  # [B, k, L]
        self.ended_tokens.scatter_(1, slots[..., None].expand_as(tokens), tokens)
        self.ended_scores.scatter_(1, slots[..., None].expand_as(scores), scores)
        self.ended_lengths.scatter_(1, slots, (position + 1).expand_as(slots))
        self.ended.add_(ends.sum(1)).clamp_(max=k)
        self.waits.logical_or_(self.ended.eq(k)).logical_or_(position >= self.limits)


def _tensors(encoder_outs: Any) -> list[Tensor]:
    return [x for x in tree_flatten(encoder_outs)[0] if isinstance(x, Tensor)]
