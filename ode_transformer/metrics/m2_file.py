"""M2 files: sentences with the corrections of one or several annotators (Dahlmeier & Ng 2012).

    S This are a sentence .
    A 1 2|||SVA|||is||was|||REQUIRED|||-NONE-|||0
    A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

``S`` is a sentence of tokens with spaces between them. Each ``A`` is an edit of one annotator: the tokens from the
first number on and before the second are replaced by the correction; two equal numbers insert there. ``||`` separates
alternative corrections; an empty one, or ``-NONE-``, deletes. ``noop`` means that an annotator found nothing to
correct. An empty line ends a sentence. An edit outside its sentence, as the conversion of JFLEG has one, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import iterate_lines

NOOP = "noop"
UNCORRECTED_TYPES = frozenset({"UNK", "Um"})  # errors that an annotator marked without knowing the correction
MAX_EDITS = 1000  # of a sentence; the published files have at most some dozens, and scoring takes time for each


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
    """A sentence and its edits by annotator, in the order of their spans; no edits if nothing was corrected.

    :param location: file and line of the sentence, for messages
    """

    tokens: tuple[str, ...]
    edits: dict[int, tuple[Edit, ...]] = field(default_factory=dict)
    location: str = ""


def read_m2(path: Path) -> list[AnnotatedSentence]:
    """Read all sentences of a file; ``-`` is standard input.

    :raises UserError: there is no sentence, or :func:`iterate_sentences` raises it
    """
    name = "standard input" if path == Path("-") else str(path)
    if not (sentences := list(iterate_sentences(iterate_lines(path), name))):
        raise UserError(f"{path}: no sentence (S …) in it")
    return sentences


def iterate_sentences(lines: Iterable[str], name: str) -> Iterator[AnnotatedSentence]:
    """Yield the sentences one by one, each as soon as its lines have been read.

    A line on standard error names each edit that lies outside its sentence; it is left out.

    :param name: names the file in errors
    :raises UserError: a line has a wrong format, or a sentence has more than ``MAX_EDITS`` edits
    """
    tokens: tuple[str, ...] | None = None
    edits: dict[int, list[Edit]] = {}
    edit_count, sentence_location = 0, ""

    def build_sentence() -> AnnotatedSentence:
        assert tokens is not None
        # The sort is stable: insertions at the same position keep the order of the annotation.
        ordered = {
            annotator: tuple(sorted(annotated, key=lambda edit: (edit.start, edit.end)))
            for annotator, annotated in sorted(edits.items())
        }
        return AnnotatedSentence(tokens, ordered, sentence_location)

    for number, text in enumerate(lines, start=1):
        location, line = f"{name}:{number}", text.strip()
        mark = line[:2].rstrip()
        if not line:
            if tokens is not None:
                yield build_sentence()
            tokens = None
        elif mark == "S":
            if tokens is not None:
                raise UserError(f"{location}: no empty line between this sentence and the one before")
            tokens, edits, edit_count, sentence_location = tuple(line[1:].split()), {}, 0, location
        elif mark == "A":
            if tokens is None:
                raise UserError(f"{location}: an edit (A) without a sentence (S) before it")
            edit_count += 1
            if edit_count > MAX_EDITS:
                raise UserError(f"{location}: more than {MAX_EDITS:,} edits of one sentence")
            annotator, edit = _parse_edit(line[1:], location)
            annotated = edits.setdefault(annotator, [])
            if edit.kind == NOOP:
                continue
            if 0 <= edit.start <= edit.end <= len(tokens):
                annotated.append(edit)
            else:
                span = f"{edit.start} {edit.end}"[:60]
                print_progress(
                    f"{location}: left out: the span {span} lies outside the sentence of {len(tokens)} tokens"
                )
        else:
            raise UserError(f"{location}: a line starts with 'S ' or 'A ', not {line[:20]!r}")
    if tokens is not None:
        yield build_sentence()


def _parse_edit(text: str, location: str) -> tuple[int, Edit]:
    """Parse an A line; return the annotator's number and the edit."""
    # Split from both ends, because a correction can contain the separator's character.
    front, back = text.split("|||", 2), text.rsplit("|||", 3)
    if text.count("|||") < 5 or len(front) < 3:
        raise UserError(
            f"{location}: an edit has six fields with ||| between them: A start end|||type|||correction|||…"
        )
    kind, annotator = front[1].strip(), back[-1].strip()
    correction = back[0].split("|||", 2)[-1]
    span = front[0].split()
    try:
        start, end = map(int, span)
        annotator_number = int(annotator)
    except ValueError as error:
        texts = f"span {' '.join(span)[:40]!r}, annotator {annotator[:40]!r}"
        raise UserError(f"{location}: not whole numbers: {texts}") from error
    if kind == NOOP or start == end == -1:
        return annotator_number, Edit(-1, -1, NOOP, ())
    alternatives = (alternative.strip() for alternative in correction.split("||"))
    corrections = tuple(() if text == "-NONE-" else tuple(text.split()) for text in alternatives)
    return annotator_number, Edit(start, end, kind, corrections)


def check_sentence_count(hypotheses: Sequence[str], sentences: Sequence[AnnotatedSentence]) -> None:
    """Check that there is one hypothesis for each sentence.

    :raises UserError: there are more or fewer
    """
    if len(hypotheses) != len(sentences):
        raise UserError(f"{len(hypotheses)} hypotheses, but {len(sentences)} sentences in the M2 file")


def max_annotators(sentences: Iterable[AnnotatedSentence]) -> int:
    """Return the largest number of annotators of a sentence; a sentence without A lines has one annotator."""
    return max(len(sentence.edits) or 1 for sentence in sentences)


def correct_tokens(sentence: AnnotatedSentence, annotator: int = 0) -> list[str]:
    """Return the tokens after an annotator's edits, each by its first correction.

    Errors without a known correction stay; of overlapping edits the later one is left out.
    """
    result: list[str] = []
    position = 0
    for edit in _compatible_edits(sentence, annotator):
        result += [*sentence.tokens[position : edit.start], *edit.corrections[0]]
        position = edit.end
    return [*result, *sentence.tokens[position:]]


def has_overlapping_edits(sentence: AnnotatedSentence, annotator: int = 0) -> bool:
    """Return whether edits of an annotator overlap, so that they cannot all be applied."""
    return len(_compatible_edits(sentence, annotator)) < len(_known_corrections(sentence, annotator))


def _compatible_edits(sentence: AnnotatedSentence, annotator: int) -> list[Edit]:
    edits: list[Edit] = []
    for edit in _known_corrections(sentence, annotator):
        if not edits or edit.start >= edits[-1].end:
            edits.append(edit)
    return edits


def _known_corrections(sentence: AnnotatedSentence, annotator: int) -> list[Edit]:
    return [edit for edit in sentence.edits.get(annotator, ()) if edit.kind not in UNCORRECTED_TYPES]
