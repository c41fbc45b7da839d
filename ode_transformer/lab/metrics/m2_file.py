"""M2 files: sentences with the corrections of one or several annotators (Dahlmeier & Ng 2012).

    S This are a sentence .
    A 1 2|||SVA|||is||was|||REQUIRED|||-NONE-|||0
    A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

``S`` is a sentence of tokens with spaces between them. Each ``A`` is an edit of one annotator: the tokens from the
first number on and before the second are replaced by the correction; two equal numbers insert there. ``||`` separates
alternative corrections; an empty one, or ``-NONE-``, deletes. ``noop`` means that an annotator found nothing to
correct. An empty line ends a sentence. An edit outside its sentence, as the conversion of JFLEG has, is left out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import iterate_lines

NOOP = "noop"
UNCORRECTED_TYPES = frozenset({"UNK", "Um"})  # errors that an annotator marked without knowing the correction


@dataclass(frozen=True)
class Edit:
    """Tokens ``start`` to ``end`` (exclusive) become one of the ``corrections``, each of them a tuple of tokens."""

    start: int
    end: int
    kind: str
    corrections: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class AnnotatedSentence:
    """A sentence and its edits by annotator, in the order of their spans; no edits if nothing was corrected.

    :param location: file and line of the sentence, for messages
    :param backward: edits that end before they start, by annotator
    """

    tokens: tuple[str, ...]
    edits: dict[int, tuple[Edit, ...]] = field(default_factory=dict)
    location: str = ""
    backward: dict[int, tuple[Edit, ...]] = field(default_factory=dict)


def read_m2(path: Path) -> list[AnnotatedSentence]:
    """Read all sentences of a file; ``-`` is standard input."""
    return list(iterate_sentences(iterate_lines(path), "standard input" if path == Path("-") else str(path)))


def iterate_sentences(lines: Iterable[str], name: str) -> Iterator[AnnotatedSentence]:
    """Yield the sentences one by one, each as soon as its lines have been read.

    A line on standard error says how many edits lie outside their sentences.

    :raises UserError: a line has a wrong format
    """
    tokens: tuple[str, ...] | None = None
    edits: dict[int, list[Edit]] = {}
    backward: dict[int, tuple[Edit, ...]] = {}
    outside_lines: list[int] = []
    sentence_location = ""
    for number, text in enumerate(chain(lines, [""]), start=1):
        location, line = f"{name}:{number}", text.strip()
        if not line and tokens is not None:
            # The sort is stable: insertions at the same position keep the order of the annotation.
            ordered = {
                annotator: tuple(sorted(annotated, key=lambda edit: (edit.start, edit.end)))
                for annotator, annotated in sorted(edits.items())
            }
            yield AnnotatedSentence(tokens, ordered, sentence_location, backward)
            tokens = None
        elif tokens is None and f"{line} ".startswith("S "):
            tokens, edits, backward, sentence_location = tuple(line[1:].split()), {}, {}, location
        elif tokens is not None and line.startswith("A "):
            annotator, edit = _parse_edit(line[1:], location)
            annotated = edits.setdefault(annotator, [])
            if edit.kind == NOOP:
                continue
            if min(edit.start, edit.end) < 0 or max(edit.start, edit.end) > len(tokens):
                outside_lines.append(number)
            elif edit.start > edit.end:
                backward[annotator] = (*backward.get(annotator, ()), edit)
            else:
                annotated.append(edit)
        elif line:
            raise UserError(f"{location}: a line S … or A … is expected, an empty line between sentences: {line[:40]}")
    if outside_lines:
        print_progress(
            f"{name}: edits outside their sentences: {len(outside_lines)}, the first in line {outside_lines[0]}; "
            "they are left out"
        )


def _parse_edit(text: str, location: str) -> tuple[int, Edit]:
    """Parse an A line; return the annotator's number and the edit."""
    try:
        # Split from both ends, because a correction can contain the separator's character.
        span, kind, other_fields = text.split("|||", 2)
        correction, _, _, annotator = other_fields.rsplit("|||", 3)
        start, end = map(int, span.split())
        annotator_number = int(annotator)
    except ValueError as error:
        raise UserError(f"{location}: an edit is A start end|||type|||correction|||…|||…|||annotator") from error
    kind = kind.strip()
    if kind == NOOP or start == end == -1:
        return annotator_number, Edit(-1, -1, NOOP, ())
    alternatives = (alternative.strip() for alternative in correction.split("||"))
    corrections = tuple(() if text == "-NONE-" else tuple(text.split()) for text in alternatives)
    return annotator_number, Edit(start, end, kind, corrections)


def max_annotators(sentences: Iterable[AnnotatedSentence]) -> int:
    """Return the largest number of annotators of a sentence; a sentence without A lines has one annotator."""
    return max(len(sentence.edits) or 1 for sentence in sentences)


def correct_tokens(sentence: AnnotatedSentence, annotator: int = 0) -> tuple[list[str], int]:
    """Return the tokens after an annotator's edits, each by its first correction, and the number of overlapping edits.

    Errors without a known correction stay; of overlapping edits the later one is left out.
    """
    result: list[str] = []
    position = overlapping = 0
    for edit in sentence.edits.get(annotator, ()):
        if edit.kind in UNCORRECTED_TYPES:
            continue
        if edit.start < position:
            overlapping += 1
            continue
        result += [*sentence.tokens[position : edit.start], *edit.corrections[0]]
        position = edit.end
    return [*result, *sentence.tokens[position:]], overlapping
