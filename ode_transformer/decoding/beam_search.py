"""fairseq's beam search with the same hypotheses, in fewer passes over the scores of all words.

Per position, fairseq's search reads or writes the scores of all hypotheses and words seven times. Here the candidates
of each hypothesis are chosen before its score is added, and they are sought only in the blocks of the vocabulary with
the highest maxima: each of the k best words is in one of the k best blocks.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ode_transformer.decoding.search_steps import choose_steps
from ode_transformer.support.errors import UserError

_BLOCK = 64  # words


class BeamSearch(SequenceGenerator):
    """Beam search of one or several models.

    What it does not know is left to fairseq: sampling, constraints, prefixes, penalties of a language model, blocked
    n-grams and suppressed words.
    """

    def __init__(self, *arguments: Any, fixed_shapes: bool = False, **options: Any) -> None:
        """Build fairseq's generator.

        :param fixed_shapes: of the steps, see ``choose_steps``
        """
        super().__init__(*arguments, **options)
        self.fixed_shapes = fixed_shapes

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
        with torch.inference_mode():
            hypotheses = self._search(sample["net_input"], self.eos if bos_token is None else bos_token)
        # Copies can be changed, and differentiated, where inference mode is off.
        return [
            [{name: x.clone() for name, x in hypothesis.items()} for hypothesis in of_sentence]
            for of_sentence in hypotheses
        ]

    def _search(self, net_input: dict[str, Tensor], first_token: int) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence of a batch, the best first; rows are hypotheses, k of a sentence.

        :raises UserError: a sentence has none
        """
        source, k = net_input["src_tokens"], self.beam_size
        sentences = len(source)
        source_lengths = net_input.get("src_lengths")
        if source_lengths is None:
            source_lengths = (source.ne(self.eos) & source.ne(self.pad)).sum(1)
        limit = self._length_limit(source, source_lengths)
        rows = torch.arange(sentences, device=source.device).repeat_interleave(k)  # [B · k]
        encoder_outs = self.model.reorder_encoder_out(self.model.forward_encoder(net_input), rows)
        steps = choose_steps(self.model, encoder_outs, self.temperature, limit, source.device, self.fixed_shapes)
        tokens = source.new_full((len(rows), limit + 2), self.pad)  # [B · k, positions]
        tokens[:, 0] = first_token
        scores = torch.zeros(len(rows), limit + 1, device=source.device)  # sums up to each position
        attention: Tensor | None = None
        # Places of a sentence's list without a hypothesis: as many as it had candidates that ended.
        vacant = torch.zeros(sentences, k, dtype=torch.bool, device=source.device)
        finalized: list[list[dict[str, Tensor]]] = [[] for _ in range(sentences)]
        gone = [False] * sentences
        waiting: list[int] = []  # numbers, among the sentences that are left, of those that have ended
        for step in range(limit + 1):
            log_probs, weights = steps.scores(tokens, step)
            if weights is not None:
                if attention is None:
                    attention = scores.new_empty(len(tokens), weights.size(1), limit + 2)
                attention[:, :, step + 1] = weights
            self._forbid(log_probs, step, limit)
            scores = scores.to(log_probs.dtype)
            remaining = len(vacant)
            totals, words, beams = candidates(log_probs, scores[:, step - 1] if step else None, remaining, k)
            rows = torch.arange(remaining, device=source.device)[:, None] * k + beams  # [B, 2k]
            ends = words.eq(self.eos) & totals.ne(-math.inf)
            ends[:, :k] &= ~vacant
            ended = ends[:, :k]
            if bool(ended.any()):
                waiting += self.finalize_hypos(
                    step,
                    rows[:, :k][ended],
                    totals[:, :k][ended],
                    tokens,
                    scores,
                    finalized,
                    list(gone),
                    k,
                    attention,
                    source_lengths,
                    limit,
                )
            if len(waiting) == remaining:
                break
            # The first k candidates that go on; where there are fewer, those that ended take the vacant places.
            ends[:, :k] |= vacant
            order = torch.arange(ends.size(1), device=source.device)
            ranks, chosen = (order + len(order) * ends).topk(k, dim=1, largest=False)  # [B, k]
            chosen_rows, chosen_words, chosen_totals = (x.gather(1, chosen) for x in (rows, words, totals))
            vacant = ranks >= len(order)
            leaving = steps.may_leave(step) and bool(waiting)
            if leaving:
                stays = torch.ones(remaining, dtype=torch.bool, device=source.device)
                stays[waiting] = False
                chosen_rows, chosen_words, chosen_totals = (
                    x[stays] for x in (chosen_rows, chosen_words, chosen_totals)
                )
                vacant, source_lengths = vacant[stays], source_lengths[stays]
                left = [sentence for sentence in range(sentences) if not gone[sentence]]
                for number in waiting:
                    gone[left[number]] = True
                waiting = []
            elif waiting:
                vacant[waiting] = True  # nothing of theirs ends again
            new_order = chosen_rows.flatten()
            tokens, scores = tokens.index_select(0, new_order), scores.index_select(0, new_order)
            tokens[:, step + 1] = chosen_words.flatten()
            scores[:, step] = chosen_totals.flatten()
            if attention is not None:
                attention = attention.index_select(0, new_order)
            steps.select(new_order, leaving)
        if not all(finalized):
            raise UserError("a line has no translation: the model's scores are not numbers, as where --fp16 overflows")
        return [sorted(hypotheses, key=lambda hypothesis: -float(hypothesis["score"])) for hypotheses in finalized]

    def _length_limit(self, source: Tensor, source_lengths: Tensor) -> int:
        """Return the greatest number of words of a hypothesis, without the end.

        :raises ValueError: it is less than the smallest
        """
        if self.match_source_len:
            limit = int(source_lengths.max())
        else:
            limit = min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)
        if limit < self.min_len:
            raise ValueError(f"hypotheses have at least {self.min_len} words and at most {limit}")
        return limit

    def _forbid(self, log_probs: Tensor, step: int, limit: int) -> None:
        """Give words that cannot follow the score -inf, in place, and the unknown word its penalty."""
        log_probs[:, self.pad] = -math.inf
        if self.unk_penalty:
            log_probs[:, self.unk] -= self.unk_penalty
        if step >= limit:
            log_probs[:, : self.eos] = -math.inf
            log_probs[:, self.eos + 1 :] = -math.inf
        elif step < self.min_len:
            log_probs[:, self.eos] = -math.inf


def candidates(log_probs: Tensor, scores: Tensor | None, sentences: int, beam: int) -> tuple[Tensor, Tensor, Tensor]:
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
    hypotheses, words = len(log_probs) // sentences, log_probs.size(1)
    count = min(2 * beam, hypotheses * words - 1)  # the padding is never one
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
