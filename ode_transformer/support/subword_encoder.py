"""Divides text into the pieces of a subword model, without fairseq."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_models import join_pieces


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
            with contextlib.redirect_stderr(message):  # subword_nmt prints its errors and exits
                self._divide = _DIVIDERS[kind](file)
        except (RuntimeError, ValueError, SystemExit) as error:
            raise UserError(f"{file}: not a file of {kind}: {message.getvalue() or error}") from error

    def encode(self, line: str) -> str:
        """Return the pieces of a line, divided by spaces."""
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
        return BPE(codes).process_line


_DIVIDERS = {"sentencepiece": _sentencepiece_divider, "subword_nmt": _subword_nmt_divider}
