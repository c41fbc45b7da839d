"""M2 files: sentences with the corrections of one or several annotators (Dahlmeier & Ng 2012).

    S This are a sentence .
    A 1 2|||SVA|||is||was|||REQUIRED|||-NONE-|||0
    A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

``S`` is a sentence of tokens with spaces between them. Each ``A`` is an edit of one annotator: the tokens from the
first number on and before the second are replaced by the correction; two equal numbers insert there. ``||`` separates
corrections that are as good as each other; an empty one, or ``-NONE-``, deletes. ``noop`` says that an annotator found
nothing to correct. An empty line ends a sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ode_transformer.support.errors import UserError

NOOP = "noop"
UNCORRECTED = frozenset({"UNK", "Um"})  # types of errors that an annotator marked without knowing what is right


@dataclass(frozen=True)
class Edit:
    """Tokens ``start`` to ``end`` (exclusive) become one of the ``corrections``, each of them a tuple of tokens."""

    start: int
    end: int
    kind: str
    corrections: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        alternatives = " || ".join(" ".join(tokens) or "(nothing)" for tokens in self.corrections)
        return f"{self.start}-{self.end} {alternatives} [{self.kind}]"


@dataclass(frozen=True)
class AnnotatedSentence:
    """A sentence and its edits by annotator, in the order of their spans; those who corrected nothing have none.

    :param place: file and line of the sentence, for messages
    """

    tokens: tuple[str, ...]
    edits: dict[int, tuple[Edit, ...]] = field(default_factory=dict)
    place: str = ""


def read_m2(path: Path) -> list[AnnotatedSentence]:
    """All sentences of a file; ``-`` is standard input.

    :raises UserError: it has none, or as for :func:`sentences_of`
    """
    if path == Path("-"):
        sentences = list(sentences_of(sys.stdin.buffer, "standard input"))
    else:
        with open(path, "rb") as file:
            sentences = list(sentences_of(file, str(path)))
    if not sentences:
        raise UserError(f"{path}: no sentence (S …) in it")
    return sentences


def sentences_of(lines: Iterable[bytes], name: str) -> Iterator[AnnotatedSentence]:
    """Sentences one by one, as the lines come.

    :param name: of the file, for errors
    :raises UserError: a line is not UTF-8 or not of the format, or an edit lies outside its sentence
    """
    tokens: tuple[str, ...] | None = None
    edits: dict[int, list[Edit]] = {}
    place = ""

    def finished() -> AnnotatedSentence:
        assert tokens is not None
        # A sort that leaves insertions at one place in the order in which they were annotated.
        ordered = {who: sorted(found, key=lambda edit: (edit.start, edit.end)) for who, found in sorted(edits.items())}
        return AnnotatedSentence(tokens, {who: tuple(found) for who, found in ordered.items()}, place)

    for number, data in enumerate(lines, start=1):
        here = f"{name}:{number}"
        try:
            line = data.decode().strip()
        except UnicodeDecodeError as error:
            raise UserError(f"{here}: not UTF-8") from error
        mark = line[:2].rstrip()
        if not line:
            if tokens is not None:
                yield finished()
            tokens = None
        elif mark == "S":
            if tokens is not None:
                raise UserError(f"{here}: no empty line between this sentence and the one before")
            tokens, edits, place = tuple(line[1:].split()), {}, here
        elif mark == "A":
            if tokens is None:
                raise UserError(f"{here}: an edit (A) without a sentence (S) before it")
            annotator, edit = _edit(line[1:], len(tokens), here)
            found = edits.setdefault(annotator, [])
            if edit.kind != NOOP:
                found.append(edit)
        else:
            raise UserError(f"{here}: a line starts with 'S ' or 'A ', not {line[:20]!r}")
    if tokens is not None:
        yield finished()


def _edit(text: str, length: int, here: str) -> tuple[int, Edit]:
    """What an A line of a sentence of so many tokens says: annotator and edit."""
    # Counted from both ends, because a correction can have the separator's character in it.
    front, back = text.split("|||", 2), text.rsplit("|||", 3)
    if text.count("|||") < 5 or len(front) < 3:
        raise UserError(f"{here}: an edit has six fields with ||| between them: A start end|||type|||correction|||…")
    kind, annotator = front[1].strip(), back[-1].strip()
    correction = back[0].split("|||", 2)[-1]
    span = front[0].split()
    try:
        start, end = map(int, span)
        who = int(annotator)
    except ValueError as error:
        raise UserError(f"{here}: not whole numbers: span {' '.join(span)!r}, annotator {annotator!r}") from error
    if kind == NOOP or start == end == -1:
        return who, Edit(-1, -1, NOOP, ())
    if not 0 <= start <= end <= length:
        raise UserError(f"{here}: the span {start} {end} lies outside the sentence of {length} tokens")
    alternatives = (alternative.strip() for alternative in correction.split("||"))
    return who, Edit(start, end, kind, tuple(() if a == "-NONE-" else tuple(a.split()) for a in alternatives))


def require_as_many(hypotheses: Sequence[str], sentences: Sequence[AnnotatedSentence]) -> None:
    """
    :raises UserError: there are not as many hypotheses as sentences
    """
    if len(hypotheses) != len(sentences):
        raise UserError(f"{len(hypotheses)} hypotheses, but {len(sentences)} sentences in the M2 file")


def most_annotators(sentences: Iterable[AnnotatedSentence]) -> int:
    """How many annotators a sentence has at most; without any line of edits it has one, with nothing to correct."""
    return max(len(sentence.edits) or 1 for sentence in sentences)


def corrected(sentence: AnnotatedSentence, annotator: int = 0) -> list[str]:
    """The tokens after an annotator's edits, each by its first correction.

    Errors without a known correction stay, and of edits that overlap the later one is left out.
    """
    result: list[str] = []
    done = 0
    for edit in _applied(sentence, annotator):
        result += [*sentence.tokens[done : edit.start], *edit.corrections[0]]
        done = edit.end
    return [*result, *sentence.tokens[done:]]


def overlap(sentence: AnnotatedSentence, annotator: int = 0) -> bool:
    """Whether edits of an annotator overlap, so that they cannot all be applied."""
    return len(_applied(sentence, annotator)) < len(_corrections(sentence, annotator))


def _applied(sentence: AnnotatedSentence, annotator: int) -> list[Edit]:
    applied: list[Edit] = []
    for edit in _corrections(sentence, annotator):
        if not applied or edit.start >= applied[-1].end:
            applied.append(edit)
    return applied


def _corrections(sentence: AnnotatedSentence, annotator: int) -> list[Edit]:
    return [edit for edit in sentence.edits.get(annotator, ()) if edit.kind not in UNCORRECTED]
