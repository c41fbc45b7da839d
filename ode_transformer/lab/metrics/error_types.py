"""Scores by type of error: ERRANT's types (Bryant et al. 2017), if ERRANT is installed.

ERRANT aligns a sentence with its correction, by grammar as well as by letters, and gives each edit a type such as
R:VERB:SVA: R for replaced, M for missing or U for unnecessary, and the category. Reference edits are extracted like
system edits, from the text after an annotator's edits (``errant_m2 -auto``), so that the same rules set their spans.

An edit is correct if a reference edit has the same span and correction. Correct and missed edits count for the
reference's type, wrong ones for their own. Of several annotators, each sentence is scored with the one who makes F of
all sentences up to it highest (to four digits), then with most correct, fewest wrong, fewest missed edits
(``errant_compare``).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ode_transformer.lab.metrics.m2_file import correct_tokens, max_annotators, read_m2
from ode_transformer.lab.metrics.max_match import BETA, MAX_PAIRS, Counts, prf_scores
from ode_transformer.lab.metrics.metric import Lines, Score, Settings, check_line_counts, check_word_pairs
from ode_transformer.support.console import print_progress, track
from ode_transformer.support.errors import UserError

MODEL = "en_core_web_sm"


class TypedEdit(NamedTuple):
    """An edit of type ``kind``: tokens ``start`` to ``end`` (exclusive) became ``correction``."""

    start: int
    end: int
    correction: str
    kind: str


def load_errant() -> tuple[Any, str]:
    """Load ERRANT's annotator for English; return it with the versions that its types depend on."""
    try:
        import errant

        annotator = errant.load("en")
    except (ImportError, OSError) as error:  # spaCy raises the latter if the model is missing
        commands = f"pip install 'ode-transformer[errant]', then python -m spacy download {MODEL}"
        raise UserError(f"--metric errant: {error}; {commands}") from error
    meta = annotator.nlp.meta
    return annotator, f"errant:{errant.__version__}|spacy:{meta['lang']}_{meta['name']}-{meta['version']}"


def find_edits(annotator: Any, source: Any, correction: Sequence[str]) -> list[TypedEdit]:
    edits = annotator.annotate(source, annotator.parse(" ".join(correction)))
    return [TypedEdit(edit.o_start, edit.o_end, edit.c_str, edit.type) for edit in edits]


def count_matches(system: Sequence[TypedEdit], reference: Sequence[TypedEdit]) -> dict[str, Counts]:
    """Count the edits of one sentence by type; each reference edit is matched at most once."""
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    missed: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for *change, kind in reference:
        missed[tuple(change)].append(kind)
    for *change, kind in system:
        if kinds := missed[tuple(change)]:
            counts[kinds.pop(0)] += Counts(correct=1, proposed=1, gold=1)
        else:
            counts[kind] += Counts(proposed=1)
    for kind in chain.from_iterable(missed.values()):
        counts[kind] += Counts(gold=1)
    return dict(counts)


def count_types(
    system: Sequence[Sequence[TypedEdit]], references: Sequence[Sequence[Sequence[TypedEdit]]]
) -> dict[str, Counts]:
    """Count the edits of a corpus by type.

    :param system: the system's edits of each sentence
    :param references: for each sentence, the edits of each of its annotators, of whom there is at least one
    """
    corpus: defaultdict[str, Counts] = defaultdict(Counts)
    for edits, annotators in zip(system, references, strict=True):
        corpus_counts = sum(corpus.values(), Counts())

        def rank(candidate: Mapping[str, Counts], corpus_counts: Counts = corpus_counts) -> tuple[float, int, int, int]:
            counts = sum(candidate.values(), Counts())
            f = round((corpus_counts + counts).f_score(BETA), 4)
            return f, counts.correct, counts.correct - counts.proposed, counts.correct - counts.gold

        for kind, counts in max((count_matches(edits, reference) for reference in annotators), key=rank).items():
            corpus[kind] += counts
    return dict(corpus)


def system_counts(hypotheses: Mapping[str, Lines], gold_file: Path) -> tuple[dict[str, dict[str, Counts]], str]:
    """Count the edits of each system against an M2 file.

    :return: system -> type -> numbers, and the versions and settings that the types depend on
    """
    gold = read_m2(gold_file)
    for lines in hypotheses.values():
        check_line_counts(lines, gold)
    annotator, versions = load_errant()
    references: list[list[list[TypedEdit]]] = []
    edits: dict[str, list[list[TypedEdit]]] = {name: [] for name in hypotheses}
    for number, sentence in enumerate(track(gold, "sentences with typed edits")):
        longest = max(len(lines[number].split()) for lines in hypotheses.values())
        check_word_pairs(longest, len(sentence.tokens), MAX_PAIRS, sentence.location)
        source = annotator.parse(" ".join(sentence.tokens))
        references.append([])
        for corrector in sorted(sentence.edits) or [0]:
            correction, overlapping = correct_tokens(sentence, corrector)
            if overlapping:
                overlap = f"edits of annotator {corrector} overlap: the later one is left out"
                print_progress(f"{sentence.location}: {overlap}")
            references[-1].append(find_edits(annotator, source, correction))
        for name, lines in hypotheses.items():
            edits[name].append(find_edits(annotator, source, lines[number].split()))
    counts = {name: count_types(of_system, references) for name, of_system in edits.items()}
    return counts, f"{versions}|annotators:{max_annotators(gold)}"


def errant_scores(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute P, R and F0.5 of all edits against ``settings.gold``, then F0.5 of each type, most frequent first."""
    assert settings.gold is not None
    counted, signature = system_counts({"": hypotheses}, settings.gold)
    by_type, sentences = counted[""], len(hypotheses)
    scores = prf_scores(sum(by_type.values(), Counts()), signature, sentences)
    for kind, counts in sorted(by_type.items(), key=lambda item: (-item[1].gold, item[0])):
        *_, score = prf_scores(counts, signature, sentences)
        detail = f"P {100 * counts.precision:.2f}, R {100 * counts.recall:.2f}, {score.detail}"
        scores.append(replace(score, metric=f"{score.metric} {kind}", detail=detail))
    return scores
