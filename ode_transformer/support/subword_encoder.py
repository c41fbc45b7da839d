"""Divides text into the pieces of a subword model, without fairseq."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from pathlib import Path

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import open_input
from ode_transformer.support.subword_models import join_pieces

LONGEST_WORD = 2000  # letters; the time that subword_nmt takes for a word grows faster than its length
CACHED_WORDS = 100_000  # words that subword_nmt remembers, some 100 bytes each; it would keep all for ever


def check_lengths(words: Iterable[str]) -> None:
    """Refuse words of which one takes subword_nmt too long.

    :raises UserError: a word is longer than ``LONGEST_WORD``
    """
    longest = max(words, key=len, default="")
    if len(longest) > LONGEST_WORD:
        allowed = f"subword_nmt divides words of at most {LONGEST_WORD:,}"
        raise UserError(f"a word of {len(longest):,} letters, {longest[:10]}…; {allowed}")


class SubwordEncoder:
    """Divides lines into pieces and joins pieces to lines, with the methods of fairseq's encoders.

    :param kind: a key of ``SUBWORD_MODELS``
    :param file: file of the subword model
    :raises UserError: the file is not of this kind
    :raises OSError: the file cannot be opened
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
        check_lengths(line.split())
        return str(bpe.process_line(line))

    return divide


_DIVIDERS = {"sentencepiece": _sentencepiece_divider, "subword_nmt": _subword_nmt_divider}
