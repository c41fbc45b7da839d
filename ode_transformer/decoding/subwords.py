"""The subword model of a trained model: which file it is, and its pieces, without fairseq."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import open_input
from ode_transformer.support.subword_models import SUBWORD_MODELS, find_subword_model, join_pieces

LONGEST_WORD = 2000  # letters; the time that subword_nmt takes for a word grows faster than its length
CACHED_WORDS = 100_000  # words that subword_nmt remembers, some 100 bytes each; it would keep all for ever


class SubwordEncoder:
    """Divides lines into pieces and joins pieces to lines, with the methods of fairseq's encoders.

    :param kind: a key of ``SUBWORD_MODELS``
    :param file: file of the subword model
    :raises UserError: the file is not of this kind
    """

    def __init__(self, kind: str, file: Path) -> None:
        self.kind = kind
        message = io.StringIO()
        try:
            with open_input(file), contextlib.redirect_stderr(message):  # subword_nmt prints its errors and exits
                self._divide = _DIVIDERS[kind](file)
        except (RuntimeError, ValueError, SystemExit) as error:
            raise UserError(f"{file}: not a file of {kind}: {message.getvalue() or error}") from error

    def encode(self, line: str) -> str:
        """Return the pieces of a line, divided by spaces.

        :raises UserError: a word is too long
        """
        return self._divide(line)

    def decode(self, pieces: str) -> str:
        """Return the line of some pieces."""
        return join_pieces(pieces, self.kind)


def _sentencepiece_divider(file: Path) -> Callable[[str], str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return lambda line: " ".join(processor.encode(line, out_type=str))


def _subword_nmt_divider(file: Path) -> Callable[[str], str]:
    from subword_nmt.apply_bpe import BPE

    with open(file, encoding="utf-8") as codes:
        bpe = BPE(codes)

    def divide(line: str) -> str:
        if len(bpe.cache) > CACHED_WORDS:
            bpe.cache.clear()
        if (longest := max(map(len, line.split()), default=0)) > LONGEST_WORD:
            raise UserError(f"a word of {longest:,} letters; subword_nmt divides words of at most {LONGEST_WORD:,}")
        return str(bpe.process_line(line))

    return divide


_DIVIDERS = {"sentencepiece": _sentencepiece_divider, "subword_nmt": _subword_nmt_divider}


def choose_subword_model(name: str | None, file: Path | None, directory: Path) -> tuple[str, Path] | None:
    """Return the kind and the file of a model's subword model; None if the text is divided into subwords already.

    :param name: a key of ``SUBWORD_MODELS``, or none; by default that of the file in ``directory``
    :param file: file of the subword model; by default the one in ``directory``
    :param directory: folder of the translation model
    :raises UserError: the name is unknown, or the file missing; several files could be the subword model
    """
    if name not in (None, "none", *SUBWORD_MODELS):
        raise UserError(f"--bpe {name}: unknown; known are {', '.join(SUBWORD_MODELS)} and none")
    if file and name in (None, "none"):
        raise UserError(f"--bpe-model {file}: name its kind with --bpe {' or '.join(SUBWORD_MODELS)}")
    if name == "none":
        return None
    if name is not None and file:
        return name, file
    model = find_subword_model(directory, SUBWORD_MODELS if name is None else [name])
    if model is not None and model[1].name != SUBWORD_MODELS[model[0]].file_name:
        print_progress(f"subword model: {model[1]} ({model[0]})")
    if model is None and name is not None:
        expected = directory / SUBWORD_MODELS[name].file_name
        raise UserError(f"--bpe {name}: name its file with --bpe-model, there is no {expected}")
    return model


def build_bpe(name: str | None, file: Path | None, directory: Path) -> SubwordEncoder | None:
    """Build the subword encoder of a model; parameters and result as of :func:`choose_subword_model`.

    :raises UserError: likewise, or the file is broken
    """
    model = choose_subword_model(name, file, directory)
    return None if model is None else SubwordEncoder(*model)
