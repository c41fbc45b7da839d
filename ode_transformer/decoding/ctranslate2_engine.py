"""Translation by CTranslate2 from a folder of ``ode-transformer export --to ctranslate2``.

:class:`ExportedModel` has the methods of fairseq's ``GeneratorHubInterface`` that ``ode-transformer translate`` calls:
lines are read, checked and written as with a checkpoint. Neither PyTorch nor fairseq is loaded.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ode_transformer.support.arguments import BEAM, LENGTH_PENALTY, MAX_WORDS
from ode_transformer.support.commands import available_processors
from ode_transformer.support.subword_models import SubwordEncoder

SOURCE_VOCABULARY, SHARED_VOCABULARY = "source_vocabulary.json", "shared_vocabulary.json"
PADDING = "<pad>"  # fairseq never generates it


class ExportedModel:
    """A model of CTranslate2 with its vocabularies, with the methods of :class:`TranslationHub` that are called here.

    :param folder: folder of ``ode-transformer export``
    :param bpe: divides lines into pieces; None for lines that are divided already
    """

    shares_lines = False  # among processes: it has threads

    def __init__(
        self,
        folder: Path,
        bpe: SubwordEncoder | None,
        batch_size: int = 32,
        max_tokens: int | None = None,
        cpu: bool = False,
    ) -> None:
        import ctranslate2  # of the extra export, without which this room must be importable

        self.config = _read_json(folder / "config.json")
        shared = (folder / SHARED_VOCABULARY).exists()
        self.words = _read_json(folder / (SHARED_VOCABULARY if shared else SOURCE_VOCABULARY))
        self.max_positions = self.config["max_source_positions"], self.config["max_target_positions"]
        self.numbers = {word: number for number, word in enumerate(self.words)}
        self._end, self._unknown = (self.numbers[self.config[name]] for name in ("eos_token", "unk_token"))
        # A worker for each processor, because a step of decoding is too small for several threads.
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu" if cpu else "auto", inter_threads=_threads(), intra_threads=1
        )
        self.bpe = bpe
        self.batches: dict[str, Any] = {"max_batch_size": batch_size, "batch_type": "examples"}
        if max_tokens is not None:
            self.batches = {"max_batch_size": max_tokens, "batch_type": "tokens"}
        self.src_dict = SimpleNamespace(unk=lambda: self._unknown)
        languages = {name: self.config.get(name) or name for name in ("source_lang", "target_lang")}
        self.task = SimpleNamespace(cfg=SimpleNamespace(**languages))

    def encode(self, line: str) -> NDArray[np.int64]:
        """Return the token numbers of a line with the end symbol."""
        pieces = (self.bpe.encode(line) if self.bpe else line).split()
        return np.array([*(self.numbers.get(piece, self._unknown) for piece in pieces), self._end])

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        beam: int = BEAM,
        lenpen: float = LENGTH_PENALTY,
        max_len_b: int = MAX_WORDS,
    ) -> list[list[dict[str, Any]]]:
        """Search the translations of token numbers with the end symbol.

        :returns: for each source the hypotheses, the best one first; ``tokens`` are words, ``score`` is the normalised
            log-probability
        """
        results = self.translator.translate_batch(
            [[self.words[number] for number in source[:-1]] for source in sources],
            beam_size=beam,
            num_hypotheses=beam,
            length_penalty=lenpen,
            max_decoding_length=min(max_len_b, self.max_positions[1] - 1),
            max_input_length=0,
            return_scores=True,
            suppress_sequences=[[PADDING]],
            **self.batches,
        )
        return [
            [{"tokens": tokens, "score": score} for tokens, score in zip(result.hypotheses, result.scores, strict=True)]
            for result in results
        ]

    def decode(self, tokens: Sequence[str]) -> str:
        """Return the line of a hypothesis."""
        pieces = " ".join(token for token in tokens if token != self.config["bos_token"])
        return self.bpe.decode(pieces) if self.bpe else pieces


def _read_json(path: Path) -> Any:
    with open(path, "rb") as file:
        return json.load(file)


def _threads() -> int:
    """Return the number of processors that this process may use, or the user's OMP_NUM_THREADS."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) > 0 else available_processors()
