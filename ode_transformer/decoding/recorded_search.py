"""Beam search whose whole step is one CUDA graph: scores, choice of words, reordering, and hypotheses that end.

All of it stays at one place in memory. Batches are padded to a few shapes, and batches of one shape share their graphs.
The program looks every few steps whether all sentences have ended.

Axes: B sentences, k hypotheses of each, R = B · k rows, S source positions, L target positions.
"""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ode_transformer.decoding.continuations import Continuations, best_continuations, choose_continuations
from ode_transformer.graphs import RECORDERS, round_up_count
from ode_transformer.nn import FIXED_STEP, ROWS_STAY, Caches, FixedStep

BLOCK = 64  # positions; within a block all steps attend to as many
_MULTIPLE = 8  # of the padded lengths of sources
_LOOK = 8  # steps between two looks whether all sentences have ended
_MOST = 16  # searches that are kept
_logger = logging.getLogger(__name__)

# fairseq's hypotheses of each sentence
Hypotheses = list[list[dict[str, Tensor]]]


@dataclass(frozen=True)
class SearchRules:
    """Options of a search.

    :param beam: k
    :param end: number of the word that ends a hypothesis; ``padding`` and ``unknown`` likewise
    :param unknown_penalty: subtracted from the score of the unknown word
    :param shortest: the least number of words, without the end
    """

    beam: int
    end: int
    padding: int
    unknown: int
    unknown_penalty: float
    shortest: int
    temperature: float


class RecordedSearches:
    """Searches by the shape of their batches, the latest ones."""

    def __init__(self) -> None:
        self._searches: OrderedDict[Any, RecordedSearch] = OrderedDict()

    @staticmethod
    def pad(source: Tensor, lengths: Tensor, padding: int) -> tuple[Tensor, Tensor]:
        """Return a batch of the shape that searches have: the first sentence again, and padding in front of all."""
        rows, width = round_up_count(len(source)), -(-source.size(1) // _MULTIPLE) * _MULTIPLE
        sentences = torch.zeros(rows, dtype=torch.long, device=source.device)
        sentences[: len(source)] = torch.arange(len(source), device=source.device)
        front = source.new_full((rows, width - source.size(1)), padding)
        return torch.cat([front, source[sentences]], dim=1), lengths[sentences]

    def search(self, model: Any, encoder_outs: Any, rules: SearchRules, capacity: int) -> "RecordedSearch":
        """Return the search for outputs of this shape, built if it is new.

        :param model: fairseq's ``EnsembleModel``, the same at every call
        :param encoder_outs: output of each model's encoder, from ``reorder_encoder_out``
        :param capacity: L, the positions that there is room for
        """
        leaves, structure = tree_flatten(encoder_outs)
        shapes = tuple((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in leaves)
        key = str(structure), shapes, rules, capacity
        if key not in self._searches:
            self._searches[key] = RecordedSearch(model, encoder_outs, rules, capacity)
        self._searches.move_to_end(key)
        if len(self._searches) > _MOST:
            self._searches.popitem(last=False)
        return self._searches[key]


class RecordedSearch:
    """A search in memory that stays at one place.

    :param encoder_outs: kept, and overwritten by later batches
    """

    def __init__(self, model: Any, encoder_outs: Any, rules: SearchRules, capacity: int) -> None:
        self.model, self.encoder_outs, self.rules = model, encoder_outs, rules
        self._outputs = _tensors(encoder_outs)
        device, k = next(model.parameters()).device, rules.beam
        B = encoder_outs[0]["encoder_out"][0].size(1)
        rows = B * k
        self.inputs = FixedStep(rows, capacity, device)
        self.states: list[Any] = [{ROWS_STAY: True, FIXED_STEP: self.inputs} for _ in range(model.models_size)]
        self.tokens = torch.full((rows, capacity + 1), rules.padding, device=device)
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
        self.not_end = torch.arange(len(model.models[0].decoder.dictionary), device=device) != rules.end
        self._replays: dict[int, Callable[[], None]] = {}  # by block
        self._warm: set[int] = set()
        record = RECORDERS.get(device.type)
        self._recorder = None if record is None else record()

    def run(self, encoder_outs: Any, limits: Tensor, first_token: int) -> None:
        """Search for a batch.

        :param limits: the greatest number of words of each sentence, without the end; further sentences are padding
        """
        with torch.inference_mode():
            self._begin(encoder_outs, limits, first_token)
            for step in range(int(limits.max()) + 1):
                self._take_step(step)
                if (step + 1) % _LOOK == 0 and bool(self.waits.all()):
                    break

    def hypotheses(self, count: int, length_power: float) -> Hypotheses:
        """Return the hypotheses of the first ``count`` sentences, on the CPU.

        :param length_power: power of a hypothesis' number of words that divides the sum of its scores
        """
        numbers, lengths = self.ended[:count].tolist(), self.ended_lengths.tolist()
        tokens, sums = self.ended_tokens[:count].cpu(), self.ended_scores[:count].cpu()
        hypotheses: Hypotheses = [[] for _ in range(count)]
        for sentence in range(count):
            for rank in range(numbers[sentence]):
                length = lengths[sentence][rank]
                so_far = sums[sentence, rank, :length]
                hypotheses[sentence].append(
                    {
                        "tokens": tokens[sentence, rank, 1 : length + 1],
                        "score": so_far[-1] / length**length_power,
                        "attention": torch.empty(0),
                        "alignment": torch.empty(0),
                        "positional_scores": torch.cat([so_far[:1], so_far[1:] - so_far[:-1]]),
                    }
                )
        return hypotheses

    def _begin(self, encoder_outs: Any, limits: Tensor, first_token: int) -> None:
        for old, new in zip(self._outputs, _tensors(encoder_outs), strict=True):
            if old is not new:
                old.copy_(new)
        for state in self.states:
            for value in state.values():
                if isinstance(value, Caches):
                    value.clear()
        self.inputs.begin(first_token)
        self.tokens.fill_(self.rules.padding)
        self.tokens[:, 0] = first_token
        self.limits.zero_()[: len(limits)] = limits
        self.waits.fill_(True)[: len(limits)] = False
        self.vacant.copy_(self.waits[:, None])
        self.ended.zero_()

    def _take_step(self, step: int) -> None:
        """Replay a step, or record it when it comes the second time in its block; the first step fills caches."""
        block = step // BLOCK
        self.inputs.room = min((block + 1) * BLOCK, self.inputs.capacity)
        if step > 0 and block in self._warm and block not in self._replays and self._recorder is not None:
            try:
                self._replays[block] = self._recorder.record_inference(self._compute)
            except RuntimeError as error:
                _logger.warning("decoding steps are not recorded: %s", error)
                self._recorder = None
        if step > 0 and block in self._replays:
            self._replays[block]()
        else:
            self._warm.add(block)
            self._compute()

    def _compute(self) -> None:
        """Take a step; everything stays in place, and nothing looks at a value."""
        position, rules = self.inputs.position, self.rules
        log_probs, _ = self.model.forward_decoder(self.inputs.tokens, self.encoder_outs, self.states, rules.temperature)
        self._forbid(log_probs, position)
        last_scores = self.scores.index_select(1, (position - 1).clamp(min=0))[:, 0]
        so_far = torch.where(position > 0, last_scores, self.first_scores)  # [R]
        continuations = best_continuations(log_probs, so_far, self.first_rows, rules.beam)
        ends = continuations.words.eq(rules.end).logical_and_(continuations.totals.ne(-math.inf))  # [B, 2k]
        ends[:, : rules.beam].gt_(self.vacant)  # true, and the place is not vacant
        self._keep_ended(continuations.first(rules.beam), ends[:, : rules.beam], position)
        self.vacant.logical_or_(self.waits[:, None])
        chosen, vacant = choose_continuations(continuations, ends, self.vacant)
        self.vacant.copy_(vacant.logical_or_(self.waits[:, None]))
        rows, next_words = chosen.rows.flatten(), chosen.words.flatten()
        for table in (self.tokens, self.scores):
            table.copy_(table.index_select(0, rows))
        self.tokens.index_copy_(1, position + 1, next_words[:, None])
        self.scores.index_copy_(1, position, chosen.totals.view(-1, 1))
        self.inputs.advance(next_words[:, None], rows)

    def _forbid(self, log_probs: Tensor, position: Tensor) -> None:
        """Give words that cannot follow the score -inf, in place, and the unknown word its penalty."""
        rules = self.rules
        log_probs.nan_to_num_(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        log_probs[:, rules.padding] = -math.inf
        if rules.unknown_penalty:
            log_probs[:, rules.unknown] -= rules.unknown_penalty
        if rules.shortest:
            log_probs[:, rules.end].masked_fill_(position < rules.shortest, -math.inf)
        at_limit = (position >= self.limits).repeat_interleave(rules.beam)  # [R]
        log_probs.masked_fill_(at_limit[:, None] & self.not_end, -math.inf)

    def _keep_ended(self, continuations: Continuations, ends: Tensor, position: Tensor) -> None:
        """Keep the hypotheses that end, ``ends`` [B, k], at most k of a sentence, which has then ended."""
        k = self.rules.beam
        slots = torch.where(ends, self.ended[:, None] + ends.cumsum(1) - 1, k).clamp_(max=k)  # [B, k]
        tokens = self.tokens[continuations.rows].index_fill_(2, position + 1, self.rules.end)  # [B, k, L + 1]
        scores = self.scores[continuations.rows].index_copy_(2, position, continuations.totals[..., None])  # [B, k, L]
        self.ended_tokens.scatter_(1, slots[..., None].expand_as(tokens), tokens)
        self.ended_scores.scatter_(1, slots[..., None].expand_as(scores), scores)
        self.ended_lengths.scatter_(1, slots, (position + 1).expand_as(slots))
        self.ended.add_(ends.sum(1)).clamp_(max=k)
        self.waits.logical_or_(self.ended.eq(k)).logical_or_(position >= self.limits)


def _tensors(encoder_outs: Any) -> list[Tensor]:
    return [x for x in tree_flatten(encoder_outs)[0] if isinstance(x, Tensor)]
