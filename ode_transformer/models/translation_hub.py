"""Models that only fairseq computes, with the methods of :class:`ode_transformer.decoding.translator.Translator`.

A language model continues a text: a hypothesis is the text with its continuation.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import apply_to_sample
from torch import Tensor

from ode_transformer.models.pretrained import dictionary_digests
from ode_transformer.models.trained_model import load_trained_model
from ode_transformer.support.arguments import BEAM, LENGTH_PENALTY, length_limit
from ode_transformer.support.errors import UserError


class TranslationHub(GeneratorHubInterface):
    """fairseq's interface of trained models, with its beam search."""

    max_positions: Any
    recorded = None  # it records no search

    @property
    def shares_lines(self) -> bool:
        """True if several processes can search: on a CPU."""
        return self.device.type == "cpu"

    @property
    def batch_size(self) -> int:
        """Sentences in a batch."""
        return int(self.cfg.dataset.batch_size)

    @property
    def continues(self) -> bool:
        return not hasattr(self.models[0], "encoder")

    @property
    def languages(self) -> tuple[str, str]:
        """Names of source and target."""
        cfg = self.task.cfg
        return ("text", "text") if self.continues else (cfg.source_lang, cfg.target_lang)

    def join(self, other: "TranslationHub", names: str) -> None:
        """Search with the models of another hub, too: a word's probability is the mean of theirs.

        :raises UserError: they read or write other words
        """
        kinds = [(hub.continues, hub.languages, dictionary_digests(hub.task)) for hub in (self, other)]
        if kinds[0] != kinds[1]:
            raise UserError(f"{names}: no ensemble, their languages or dictionaries differ")
        self.models.extend(other.models)
        self.max_positions = utils.resolve_max_positions(self.max_positions, other.max_positions)

    def encode(self, sentence: str) -> Tensor:
        """Return the token numbers of a line with the end symbol; ``--truncate-source`` cuts it as in training."""
        tokens, limit = super().encode(sentence), self.max_positions
        if getattr(self.task.cfg, "truncate_source", False) and len(tokens) > limit[0]:
            tokens = torch.cat([tokens[: limit[0] - 1], tokens[-1:]])
        return tokens

    def generate(
        self,
        tokenized_sentences: Sequence[Tensor],
        beam: int = BEAM,
        verbose: bool = False,
        *,
        lenpen: float = LENGTH_PENALTY,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        sampling: bool = False,
        sampling_topk: int = -1,
        temperature: float = 1.0,
        progress: Callable[[int], object] = int,
    ) -> list[list[dict[str, Tensor]]]:
        """Return fairseq's hypotheses for each source, the best one first.

        :param tokenized_sentences: token numbers of the sources, with the end symbol
        :param max_len_a: with ``max_len_b`` see :func:`length_limit`; of a continuation without its beginning
        :param sampling: draw words instead of searching the best; with ``sampling_topk`` among the most probable ones
        :param progress: called with the number of sources of each batch that is done
        """
        a, b = length_limit(max_len_a, max_len_b)
        dictionary = self.task.target_dictionary
        generator = SequenceGenerator(
            self.models,
            dictionary,
            beam_size=beam,
            len_penalty=lenpen,
            search_strategy=Sampling(dictionary, sampling_topk) if sampling else None,
            temperature=temperature,
            max_len_a=a + self.continues,
            max_len_b=b - self.continues,  # the end symbol at the beginning
        )
        hypotheses: dict[int, list[dict[str, Tensor]]] = {}
        build_batches = partial(self._build_batches, skip_invalid_size_inputs=False)
        texts = self._texts_to_continue if self.continues else build_batches
        for batch in texts(tokenized_sentences):
            results = self.task.inference_step(
                generator, self.models, apply_to_sample(lambda x: x.to(self.device), batch)
            )
            hypotheses.update(zip(batch["id"].tolist(), results, strict=True))
            progress(len(results))
        return [hypotheses[number] for number in range(len(tokenized_sentences))]

    def _texts_to_continue(self, texts: Sequence[Tensor]) -> Iterator[dict[str, Any]]:
        """Yield batches for a language model, each of texts of one length: fairseq limits all by the longest."""
        by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for length, group in groupby(by_length, key=lambda number: len(texts[number])):
            numbers, limits = list(group), self.cfg.dataset
            size = min(limits.batch_size, max(1, (limits.max_tokens or sys.maxsize) // length))
            for start in range(0, len(numbers), size):
                chosen = numbers[start : start + size]
                tokens = torch.stack([texts[number] for number in chosen]).roll(1, dims=1)  # the end symbol begins it
                if getattr(self.cfg.task, "add_bos_token", False):
                    tokens[:, 0] = self.task.source_dictionary.bos()
                net_input = {"src_tokens": tokens, "src_lengths": torch.full((len(chosen),), length)}
                yield {"id": torch.tensor(chosen), "net_input": net_input}


def load_fairseq_hub(
    args: argparse.Namespace, path: Path, changes: Mapping[str, str], state: Mapping[str, Any]
) -> TranslationHub:
    """Load a model as a :class:`TranslationHub` without subword encoder, on the CPU.

    :param args: data, languages and batches of a command
    :param changes: options in the place of saved ones
    :param state: what was read of the checkpoint
    """
    languages, data = (args.source_lang, args.target_lang), args.data or path.parent
    model, options, task = load_trained_model(path, data, *languages, changes, state)
    # As in fairseq-interactive, the training's options for batches are ignored.
    options.dataset.batch_size, options.dataset.max_tokens = args.batch_size, getattr(args, "max_tokens", None)
    return TranslationHub(options, task, [model])
