"""fairseq's beam search with the same hypotheses, in fewer passes over the scores of all words."""

from __future__ import annotations

import math
from typing import Any

import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ode_transformer.decoding.hypotheses import Continuations, Hypotheses
from ode_transformer.decoding.search_steps import choose_steps
from ode_transformer.support.errors import UserError


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
        lengths = net_input.get("src_lengths")
        if lengths is None:
            lengths = (source.ne(self.eos) & source.ne(self.pad)).sum(1)
        limit = self._length_limit(source, lengths)
        rows = torch.arange(len(source), device=source.device).repeat_interleave(k)
        encoder_outs = self.model.reorder_encoder_out(self.model.forward_encoder(net_input), rows)
        steps = choose_steps(self.model, encoder_outs, self.temperature, limit, source.device, self.fixed_shapes)
        hypotheses = Hypotheses(lengths, k, limit, first_token, self.pad)
        finalized: list[list[dict[str, Tensor]]] = [[] for _ in range(len(source))]
        waiting: list[int] = []  # numbers, among the sentences that are left, of those that have ended
        for step in range(limit + 1):
            log_probs, weights = steps.scores(hypotheses.tokens, step)
            self._forbid(log_probs, step, limit)
            hypotheses.keep_attention(weights, step)
            found = hypotheses.continuations(log_probs, step)
            ends = found.words.eq(self.eos) & found.totals.ne(-math.inf)  # [B, 2k]
            ends[:, :k] &= ~hypotheses.vacant
            if bool(ends[:, :k].any()):
                ended = found.first(k).select(ends[:, :k])
                waiting += self._finalize(step, ended, hypotheses, limit, finalized)
            if len(waiting) == len(hypotheses.sentences):
                break
            chosen = hypotheses.choose(found, ends)
            leaving = steps.may_leave(step) and bool(waiting)
            if leaving:
                stays = hypotheses.remove(waiting)
                chosen, waiting = chosen.select(stays), []
            elif waiting:
                hypotheses.vacant[waiting] = True  # nothing of theirs ends again
            steps.select(hypotheses.continue_by(chosen, step), leaving)
        if not all(finalized):
            raise UserError("a line has no translation: the model's scores are not numbers, as where --fp16 overflows")
        return [sorted(of_sentence, key=lambda hypothesis: -float(hypothesis["score"])) for of_sentence in finalized]

    def _finalize(
        self,
        step: int,
        ended: Continuations,
        hypotheses: Hypotheses,
        limit: int,
        finalized: list[list[dict[str, Tensor]]],
    ) -> list[int]:
        """Add hypotheses that end to the results of their sentences.

        :param ended: [N] each
        :param finalized: of each sentence of the batch, changed in place
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
