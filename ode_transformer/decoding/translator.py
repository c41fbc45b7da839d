"""A trained model with the steps from a line to its translation."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ode_transformer.decoding.recorded_search import RecordedSearches
from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.nn import BEGIN, END, PADDING, BeamSearch, Hypotheses, NoTranslation, SearchOptions
from ode_transformer.support.arguments import BEAM, LENGTH_PENALTY, length_limit
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_models import SubwordEncoder


class Translator:
    """Trained models of one pair of languages, or language models, at work.

    :param trained: models that translate together
    :param batch_size: sentences in a batch
    :param max_tokens: tokens in a batch, padding included; None for any number
    :ivar bpe: divides lines into pieces and joins them; None for lines that are divided already
    :ivar recorded: searches that a GPU repeats; None to record none
    """

    def __init__(self, trained: Sequence[TrainedModel], batch_size: int = 32, max_tokens: int | None = None) -> None:
        self.trained = first = trained[0]
        self.models = [each.model for each in trained]
        self.batch_size, self.max_tokens = batch_size, max_tokens
        self.src_dict, self.tgt_dict = first.source_dictionary, first.target_dictionary
        self.bpe: SubwordEncoder | None = None
        self.recorded: RecordedSearches | None = None
        self.continues = first.continues
        limits = [each.max_positions for each in trained]
        self.max_positions: Any = min(limits) if self.continues else tuple(map(min, zip(*limits, strict=True)))

    @property
    def device(self) -> torch.device:
        """Device of the models."""
        return next(self.models[0].parameters()).device

    @property
    def shares_lines(self) -> bool:
        """True if several processes can search: on a CPU, where a process can be forked."""
        forks = hasattr(os, "fork") and sys.platform != "darwin"  # whose libraries a fork cannot use
        return self.device.type == "cpu" and forks

    @property
    def languages(self) -> tuple[str, str]:
        """Names of source and target."""
        return self.trained.languages or ("text", "text")

    def join(self, other: "Translator", names: str) -> None:
        """Search with the models of another translator, too: a word's probability is the mean of theirs.

        :param names: of the models, for an error
        :raises UserError: they read or write other words
        """
        kinds = [(hub.continues, hub.languages, hub.src_dict.symbols, hub.tgt_dict.symbols) for hub in (self, other)]
        if type(self) is not type(other) or kinds[0] != kinds[1]:
            raise UserError(f"{names}: no ensemble, their languages or dictionaries differ")
        self.models.extend(other.models)
        both = self.max_positions, other.max_positions
        self.max_positions = min(both) if self.continues else tuple(map(min, zip(*both, strict=True)))

    def half(self) -> Self:
        """Convert the models to half precision."""
        for model in self.models:
            model.half()
        return self

    def cuda(self) -> Self:
        """Move the models to the GPU."""
        for model in self.models:
            model.cuda()
        return self

    def encode(self, line: str) -> Tensor:
        """Return the token numbers of a line with the end symbol; ``--truncate-source`` cuts it as in training."""
        tokens = self.src_dict.encode_line(self.bpe.encode(line) if self.bpe else line)
        if not self.continues and self.trained.task_options.get("truncate_source"):
            limit = self.max_positions[0]
            if len(tokens) > limit:
                tokens = torch.cat([tokens[: limit - 1], tokens[-1:]])
        return tokens

    def decode(self, tokens: Tensor | Sequence[int]) -> str:
        """Return the line of token numbers."""
        pieces = self.tgt_dict.string(tokens)
        return self.bpe.decode(pieces) if self.bpe else pieces

    def translate(self, lines: str | Sequence[str], beam: int = BEAM, **search: Any) -> Any:
        """Return the translation of a line, or those of several.

        :param search: further options of :meth:`generate`
        """
        if isinstance(lines, str):
            return self.translate([lines], beam, **search)[0]
        hypotheses = self.generate([self.encode(line) for line in lines], beam, **search)
        return [self.decode(of_line[0]["tokens"]) for of_line in hypotheses]

    def generate(
        self,
        sources: Sequence[Tensor],
        beam: int = BEAM,
        *,
        lenpen: float = LENGTH_PENALTY,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        sampling: bool = False,
        sampling_topk: int = -1,
        temperature: float = 1.0,
        progress: Callable[[int], object] = int,
    ) -> Hypotheses:
        """Return the hypotheses for each source, the best one first.

        :param sources: token numbers of the sources, with the end symbol
        :param max_len_a: with ``max_len_b`` see :func:`length_limit`; of a continuation without its beginning
        :param sampling: draw words instead of searching the best; with ``sampling_topk`` among the most probable ones
        :param progress: called with the number of sources of each batch that is done
        """
        a, b = length_limit(max_len_a, max_len_b)
        options = SearchOptions(
            beam,
            lenpen,
            a,
            b,
            temperature=temperature,
            sampling=sampling,
            sampling_topk=max(0, sampling_topk),
        )
        search = BeamSearch(self.models, options, self.recorded)
        hypotheses: Hypotheses = [[] for _ in sources]
        for numbers in self._batches(sources):
            texts = [sources[number] for number in numbers]
            try:
                if self.continues:
                    beginnings = torch.stack(texts)[:, :-1]  # without the end symbol
                    first = BEGIN if self.trained.task_options.get("add_bos_token") else END
                    results = search.continue_texts(beginnings.to(self.device), first)
                else:
                    batch = pad_sequence([text.flip(0) for text in texts], batch_first=True, padding_value=PADDING)
                    results = search.search(batch.flip(1).to(self.device))  # with padding on the left
            except NoTranslation as error:
                raise UserError(str(error)) from error
            for number, result in zip(numbers, results, strict=True):
                hypotheses[number] = result
            progress(len(numbers))
        return hypotheses

    def _batches(self, sources: Sequence[Tensor]) -> Iterator[list[int]]:
        """Yield the numbers of the sources of each batch, of similar length; of equal length for a language model."""
        by_length = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        groups = groupby(by_length, key=lambda number: len(sources[number]) if self.continues else 0)
        for _, group in groups:
            batch: list[int] = []
            for number in group:
                tokens = (len(batch) + 1) * len(sources[number])
                if batch and (len(batch) == self.batch_size or tokens > (self.max_tokens or tokens)):
                    yield batch
                    batch = []
                batch.append(number)
            yield batch
