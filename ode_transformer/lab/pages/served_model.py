"""A model that is served: its translations, and a look inside it at one sentence."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ode_transformer.decoding.attention_maps import axis_tokens
from ode_transformer.decoding.translate import encode, normalize_spaces, search_all
from ode_transformer.decoding.translation_hub import on_device
from ode_transformer.lab.analysis.one_sentence import attention, matrix_data, readable_tokens, word_weights
from ode_transformer.lab.pages.requests import AttentionMap, InspectedLine, StageWeightsByWord, Translation


class ServedModel:
    """A translation model with its name.

    :param search: options of fairseq's search beside the beam
    """

    def __init__(self, name: str, hub: Any, max_tokens: int | None = None, **search: Any) -> None:
        self.name, self.hub, self.max_tokens, self.search_options = name, hub, max_tokens, search
        self.source_lang, self.target_lang = hub.languages

    def encode(self, lines: Sequence[str]) -> tuple[dict[int, Tensor], str]:
        """Return the tokens of the lines that have any, by index, and a warning or "".

        :raises UserError: a line is longer than the model or ``--max-tokens`` allows
        """
        return encode(self.hub, lines, "your text", self.max_tokens)

    def search(self, sources: Sequence[Tensor], beam: int) -> Iterator[list[dict[str, Any]]]:
        """Yield fairseq's hypotheses for each source, the best one first."""
        return search_all(self.hub, sources, "lines translated", **{**self.search_options, "beam": beam})

    def text(self, hypothesis: Mapping[str, Any]) -> str:
        """Return a hypothesis as a line."""
        return normalize_spaces(self.hub.decode(hypothesis["tokens"]))

    def translate(self, sources: Sequence[Tensor], beam: int) -> list[list[Translation]]:
        """Return the translations of each source, the best one first."""
        return [
            [Translation(text=self.text(h), score=round(float(h["score"]), 4)) for h in hypotheses]
            for hypotheses in self.search(sources, beam)
        ]

    def inspect(self, sources: Sequence[Tensor], beam: int) -> list[InspectedLine]:
        """Return the best translation of each source, with the attention and the stage weights that go with it."""
        found = zip(sources, self.search(sources, beam), strict=True)
        return [self._look_inside(source, hypotheses[0]) for source, hypotheses in found]

    @torch.no_grad()
    def _look_inside(self, source: Tensor, best: Mapping[str, Any]) -> InspectedLine:
        model, task = self.hub.models[0], self.hub.task
        target, end = best["tokens"].cpu().long(), task.target_dictionary.eos()
        previous = torch.cat([target.new_tensor([end]), target[:-1]])
        dictionaries = {"source": task.source_dictionary, "target": task.target_dictionary}
        if self.hub.continues:  # its source is what it has read
            source = previous
        tokens = axis_tokens({"source": source, "target": target}, dictionaries)
        inputs = {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}
        if not self.hub.continues:
            inputs["prev_output_tokens"] = previous[None]
        sample = on_device({"net_input": inputs}, self.hub.device)
        readable = {side: readable_tokens(row) for side, row in tokens.items()}
        blocks = word_weights(model, sample, only_varying=False)
        return InspectedLine(
            model=self.name,
            translation=self.text(best),
            tokens={side: readable[side] for side in ("source", "target")},
            attention=[AttentionMap(**matrix_data(matrix)) for matrix in attention(model, sample, tokens)],
            stage_weights=[
                StageWeightsByWord(
                    block=block,
                    tokens=readable["source" if block.startswith("encoder") else "prefix"],
                    # JSON has no nan
                    weights=[[round(w, 4) if math.isfinite(w) else None for w in row] for row in rows.tolist()],
                )
                for block, rows in blocks.items()
            ],
        )
