"""Which kinds of errors a system corrects: ERRANT's types (Bryant et al. 2017), where ERRANT is installed.

ERRANT aligns a sentence with its correction, by grammar as well as by letters, and gives each edit a type such as
R:VERB:SVA: replaced, missing (M) or unnecessary (U), and what. System and reference edits are found in the same way,
the latter from the text that an annotator's edits make (``errant_m2 -auto``): both have spans by the same rules.

An edit is correct if a reference edit has the same span and correction. Correct and missed edits count for the
reference's type, wrong ones for their own. Of several annotators, a sentence has the one with whom F of all sentences
up to it is highest, to four digits, then the one with most correct, fewest wrong, fewest missed edits
(``errant_compare``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ode_transformer.metrics.m2_file import (
    AnnotatedSentence,
    corrected,
    most_annotators,
    overlap,
    read_m2,
    require_as_many,
)
from ode_transformer.metrics.max_match import BETA, Counts, prf_scores
from ode_transformer.metrics.metric import Lines, Score, Settings
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError

MODEL = "en_core_web_sm"


@dataclass(frozen=True)
class TypedEdit:
    """Tokens ``start`` to ``end`` (exclusive) became ``correction``, which is an edit of this ``kind``."""

    start: int
    end: int
    correction: str
    kind: str

    @property
    def change(self) -> tuple[int, int, str]:
        return self.start, self.end, self.correction


def load_errant() -> tuple[Any, str]:
    """ERRANT's annotator for English, and the versions that its types depend on.

    :raises UserError: ERRANT or spaCy's model is not installed; says what to install
    """
    try:
        import errant
    except ImportError as error:
        raise UserError(
            f"--metric errant: {error}; pip install errant==3.0.2, then python -m spacy download {MODEL}"
        ) from error
    try:
        annotator = errant.load("en")
    except OSError as error:  # spaCy's, where it finds no model
        raise UserError(
            f"--metric errant: spaCy's model {MODEL} is not installed; python -m spacy download {MODEL}"
        ) from error
    meta = annotator.nlp.meta
    return annotator, f"errant:{errant.__version__}|spacy:{meta['lang']}_{meta['name']}-{meta['version']}"


def find_edits(annotator: Any, source: Any, correction: Sequence[str]) -> list[TypedEdit]:
    """The edits from a sentence to its correction.

    :param annotator: ERRANT's
    :param source: the sentence as ``annotator.parse`` gives it
    """
    found = annotator.annotate(source, annotator.parse(" ".join(correction)))
    return [TypedEdit(edit.o_start, edit.o_end, edit.c_str, edit.type) for edit in found]


def compare(system: Sequence[TypedEdit], reference: Sequence[TypedEdit]) -> dict[str, Counts]:
    """The numbers of one sentence by type of edit; each reference edit is found once."""
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    missed: defaultdict[tuple[int, int, str], list[str]] = defaultdict(list)
    for edit in reference:
        missed[edit.change].append(edit.kind)
    for edit in system:
        if kinds := missed[edit.change]:
            counts[kinds.pop(0)] += Counts(correct=1, proposed=1, gold=1)
        else:
            counts[edit.kind] += Counts(proposed=1)
    for kind in chain.from_iterable(missed.values()):
        counts[kind] += Counts(gold=1)
    return dict(counts)


def total(counts: Mapping[str, Counts]) -> Counts:
    """The numbers of all types together."""
    return sum(counts.values(), Counts())


def count_types(
    system: Sequence[Sequence[TypedEdit]], references: Sequence[Sequence[Sequence[TypedEdit]]]
) -> dict[str, Counts]:
    """The numbers of a corpus by type.

    :param system: the edits of each sentence
    :param references: those of each of its annotators, at least one
    """
    corpus: defaultdict[str, Counts] = defaultdict(Counts)
    for edits, annotators in zip(system, references, strict=True):
        so_far = total(corpus)

        def worth(found: Mapping[str, Counts], before: Counts = so_far) -> tuple[float, int, int, int]:
            own = total(found)
            f = round((before + own).f_score(BETA), 4)
            return f, own.correct, own.correct - own.proposed, own.correct - own.gold

        for kind, counts in max((compare(edits, reference) for reference in annotators), key=worth).items():
            corpus[kind] += counts
    return dict(corpus)


def errant_scores(hypotheses: Lines, settings: Settings) -> list[Score]:
    """P, R and F0.5 of all edits against ``settings.gold``, then F0.5 of each type, the most frequent first."""
    assert settings.gold is not None
    gold = read_m2(settings.gold)
    require_as_many(hypotheses, gold)
    annotator, versions = load_errant()
    meter = ProgressMeter("sentences with typed edits", len(gold))
    system, references = [], []
    for number, (line, sentence) in enumerate(zip(hypotheses, gold, strict=True), start=1):
        source = annotator.parse(" ".join(sentence.tokens))
        system.append(find_edits(annotator, source, line.split()))
        references.append([find_edits(annotator, source, text) for text in _corrections(sentence)])
        meter.update(number)
    by_type = count_types(system, references)
    signature = f"{versions}|annotators:{most_annotators(gold)}"
    scores = prf_scores(total(by_type), signature, len(gold))
    for kind, counts in sorted(by_type.items(), key=lambda item: (-item[1].gold, item[0])):
        *_, score = prf_scores(counts, signature, len(gold))
        detail = f"P {100 * counts.precision:.2f}, R {100 * counts.recall:.2f}, {score.detail}"
        scores.append(Score(f"{score.metric} {kind}", score.value, score.signature, detail, len(gold)))
    return scores


def _corrections(sentence: AnnotatedSentence) -> list[list[str]]:
    """The text of each annotator."""
    annotators = sorted(sentence.edits) or [0]
    for annotator in annotators:
        if overlap(sentence, annotator):
            print_progress(f"{sentence.place}: edits of annotator {annotator} overlap: the later one is left out")
    return [corrected(sentence, annotator) for annotator in annotators]
