"""Translation by CTranslate2 from a folder of ``ode-transformer export --to ctranslate2``.

:class:`ExportedModel` has the methods of fairseq's ``GeneratorHubInterface`` that ``ode-transformer translate`` calls:
lines are read, checked and written as with a checkpoint. Neither PyTorch nor fairseq is loaded.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ode_transformer.support.arguments import BEAM, LENGTH_PENALTY, length_limit
from ode_transformer.support.commands import available_processors
from ode_transformer.support.files import check_digests, read_json
from ode_transformer.support.subword_models import SubwordEncoder

SOURCE_VOCABULARY, SHARED_VOCABULARY = "source_vocabulary.json", "shared_vocabulary.json"
PADDING = "<pad>"  # fairseq never generates it
ROUNDED_LIMIT = 50  # tokens


class ExportedModel:
    """A model of CTranslate2 with its vocabularies, with the methods of :class:`TranslationHub` that are called here.

    :param folder: folder of ``ode-transformer export``
    :param bpe: divides lines into pieces; None for lines that are divided already
    :raises UserError: a file of the folder is not the one that was exported
    """

    shares_lines = False  # among processes: it has threads
    continues = False

    def __init__(
        self,
        folder: Path,
        bpe: SubwordEncoder | None,
        batch_size: int = 32,
        max_tokens: int | None = None,
        cpu: bool = False,
    ) -> None:
        import ctranslate2  # of the extra export, without which this room must be importable

        check_digests(folder)
        self.config = read_json(folder / "config.json")
        shared = (folder / SHARED_VOCABULARY).exists()
        self.words = read_json(folder / (SHARED_VOCABULARY if shared else SOURCE_VOCABULARY))
        self.max_positions = self.config["max_source_positions"], self.config["max_target_positions"]
        self.numbers = {word: number for number, word in enumerate(self.words)}
        self._end, self._unknown = (self.numbers[self.config[name]] for name in ("eos_token", "unk_token"))
        # A worker for each processor, because a step of decoding is too small for several threads.
        device = "cpu" if cpu else "auto"
        self.translator = ctranslate2.Translator(str(folder), device, inter_threads=_threads(), intra_threads=1)
        self.bpe = bpe
        self.batches: dict[str, Any] = {"max_batch_size": batch_size, "batch_type": "examples"}
        if max_tokens is not None:
            self.batches = {"max_batch_size": max_tokens, "batch_type": "tokens"}
        self.src_dict = SimpleNamespace(unk=lambda: self._unknown)
        self.languages = tuple(self.config.get(name) or name for name in ("source_lang", "target_lang"))

    def encode(self, line: str) -> NDArray[np.int64]:
        """Return the token numbers of a line with the end symbol."""
        pieces = (self.bpe.encode(line) if self.bpe else line).split()
        return np.array([*(self.numbers.get(piece, self._unknown) for piece in pieces), self._end])

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        beam: int = BEAM,
        lenpen: float = LENGTH_PENALTY,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        progress: Callable[[int], object] = int,
    ) -> list[list[dict[str, Any]]]:
        """Search the translations of token numbers with the end symbol.

        :param max_len_a: with ``max_len_b`` see :func:`length_limit`
        :param progress: called with the number of sources that are done
        :returns: for each source the hypotheses, the best one first; ``tokens`` are words, ``score`` is the normalised
            log-probability
        """
        a, b = length_limit(max_len_a, max_len_b)
        # CTranslate2 has one limit for each call: rounded up, so that there are few calls of many sources.
        with_limit: dict[int, list[int]] = {}
        for number, source in enumerate(sources):
            limit = ROUNDED_LIMIT * math.ceil((a * len(source) + b) / ROUNDED_LIMIT) if a else b
            with_limit.setdefault(min(limit, self.max_positions[1] - 1), []).append(number)
        results: dict[int, Any] = {}
        for limit in sorted(with_limit, reverse=True):
            started = self.translator.translate_batch(
                [[self.words[number] for number in sources[index][:-1]] for index in with_limit[limit]],
                beam_size=beam,
                num_hypotheses=beam,
                length_penalty=lenpen,
                max_decoding_length=limit,
                max_input_length=0,
                return_scores=True,
                suppress_sequences=[[PADDING]],
                asynchronous=True,  # so that no call waits for the one before
                **self.batches,
            )
            results.update(zip(with_limit[limit], started, strict=True))
        hypotheses: list[list[dict[str, Any]]] = [[]] * len(sources)
        for number, waiting in results.items():
            result = waiting.result()
            pairs = zip(result.hypotheses, result.scores, strict=True)
            hypotheses[number] = [{"tokens": tokens, "score": score} for tokens, score in pairs]
            progress(1)
        return hypotheses

    def decode(self, tokens: Sequence[str]) -> str:
        pieces = " ".join(token for token in tokens if token != self.config["bos_token"])
        return self.bpe.decode(pieces) if self.bpe else pieces


def _threads() -> int:
    """Return the number of processors that this process may use, or the user's OMP_NUM_THREADS."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) > 0 else available_processors()
