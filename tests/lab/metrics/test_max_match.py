"""MaxMatch against its definition and examples worked by hand; M2 files: what is read and how edits are applied."""

import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from ode_transformer.lab.metrics.edit_lattice import EditLattice, SystemEdit
from ode_transformer.lab.metrics.m2_file import AnnotatedSentence, Edit, correct_tokens, iterate_sentences, read_m2
from ode_transformer.lab.metrics.max_match import Counts, max_match
from ode_transformer.support.errors import UserError

# The official scorer's README has an example of the same kinds of edits: 4 correct of 5 system and 5 gold edits.
EXAMPLE = """S A boy ran at road .
A 3 4|||Prep|||along|||REQUIRED|||-NONE-|||0
A 4 4|||ArtOrDet|||the||a|||REQUIRED|||-NONE-|||0

S My hat .
A 1 2|||Nn|||hats|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

S Small birds eats a many seed .
A 2 3|||SVA|||eat|||REQUIRED|||-NONE-|||0
A 3 4|||ArtOrDet|||-NONE-|||REQUIRED|||-NONE-|||0
A 5 6|||Nn|||seeds|||REQUIRED|||-NONE-|||0
A 1 2|||Nn|||bird|||REQUIRED|||-NONE-|||1
"""
OUTPUT = ["The boy ran along a road .", "My hat .", "Small birds eat many seed ."]


def gold(text: str) -> list[AnnotatedSentence]:
    return list(iterate_sentences(text.splitlines(), "gold.m2"))


def test_sentences_too_long_for_a_lattice():
    long = "word " * 1001
    with pytest.raises(UserError, match=r"gold\.m2:1: lines of 1,001 and 1,001 words are too long: at most 1,000,000 "):
        max_match([long], gold(f"S {long}\n"))


def test_example_of_the_official_scorer():
    matched = max_match(OUTPUT, gold(EXAMPLE))
    assert [found.annotator for found in matched] == [0, 1, 0]
    (wrong, *right) = matched[0].edits
    assert wrong == SystemEdit(0, 1, ("The",), False)
    assert right == [SystemEdit(3, 4, ("along",), True), SystemEdit(4, 4, ("a",), True)]
    assert matched[0].counts == Counts(correct=2, proposed=3, gold=2)
    result = sum((sentence.counts for sentence in matched), Counts())
    assert result == Counts(correct=4, proposed=5, gold=5)
    assert (result.precision, result.recall, result.f_score(0.5)) == (0.8, 0.8, pytest.approx(0.8))


Tokens = Sequence[str]
Walk = list[tuple[int, int]]  # vertices


def paths(i: int, j: int) -> Iterator[Walk]:
    """All ways from (0, 0) to (i, j) by deletions, insertions and diagonal edges."""
    if i == j == 0:
        yield [(0, 0)]
    for di, dj in ((1, 0), (0, 1), (1, 1)):
        if i >= di and j >= dj:
            for path in paths(i - di, j - dj):
                yield [*path, (i, j)]


def keeps(source: Tokens, hypothesis: Tokens, a: tuple[int, int], b: tuple[int, int]) -> bool:
    return b == (a[0] + 1, a[1] + 1) and source[a[0]] == hypothesis[a[1]]


def paths_within_the_lattice(source: Tokens, hypothesis: Tokens) -> list[Walk]:
    everything = list(paths(len(source), len(hypothesis)))
    edges = set()
    for substitution in (1, 2):

        def price(path: Walk, substitution: int = substitution) -> int:
            return sum(
                0 if keeps(source, hypothesis, a, b) else substitution if b == (a[0] + 1, a[1] + 1) else 1
                for a, b in zip(path, path[1:], strict=False)
            )

        cheapest = min(map(price, everything))
        for path in everything:
            if price(path) == cheapest:
                edges |= set(zip(path, path[1:], strict=False))
    return [path for path in everything if edges >= set(zip(path, path[1:], strict=False))]


def matchings(edits: list[tuple[int, int, tuple[str, ...]]], annotated: Tokens, first: int = 0) -> Iterator[list[bool]]:
    """All ways to give edits different gold edits, in order."""
    if not edits:
        yield []
        return
    start, end, correction = edits[0]
    for rest in matchings(edits[1:], annotated, first):
        yield [False, *rest]
    for number in range(first, len(annotated)):
        edit = annotated[number]
        if (edit.start, edit.end) == (start, end) and correction in edit.corrections:
            for rest in matchings(edits[1:], annotated, number + 1):
                yield [True, *rest]


def by_definition(source: Tokens, hypothesis: Tokens, edits: Sequence[Edit], max_unchanged: int) -> tuple[int, int]:
    """Correct and system edits."""
    best = None
    for path in paths_within_the_lattice(source, hypothesis):
        edges = len(path) - 1
        for cuts in product((False, True), repeat=max(edges - 1, 0)):
            stops = [0, *(number for number, cut in enumerate(cuts, start=1) if cut), *([edges] if edges else [])]
            found, lengths, kept_alone, valid = [], [], 0, True
            for begin, stop in zip(stops, stops[1:], strict=False):
                kept = sum(keeps(source, hypothesis, path[n], path[n + 1]) for n in range(begin, stop))
                if kept == stop - begin:
                    valid &= kept == 1
                    kept_alone += 1
                else:
                    valid &= kept <= max_unchanged
                    (i, j), (k, m) = path[begin], path[stop]
                    found.append((i, k, tuple(hypothesis[j:m])))
                    lengths.append(stop - begin)
            if not valid:
                continue
            for matching in matchings(found, edits):
                outside = kept_alone + sum(n for n, correct in zip(lengths, matching, strict=True) if not correct)
                value = (-sum(matching), outside, len(found) - sum(matching))
                best = value if best is None else min(best, value)
    assert best is not None
    return -best[0], -best[0] + best[2]


def random_edits(rng: random.Random, source: Tokens) -> tuple[Edit, ...]:
    edits, position = [], 0
    while position <= len(source):
        if rng.random() < 0.5:
            end = min(len(source), position + rng.choice((0, 0, 1, 1, 2, 3)))
            lengths = [rng.choice((0, 1, 1, 2)) for _ in range(rng.choice((1, 1, 2)))]
            edits.append(Edit(position, end, "x", tuple(tuple(rng.choices("abc", k=n)) for n in lengths)))
            position = end if end > position or rng.random() < 0.5 else end + 1
        else:
            position += 1
    return tuple(edits)


@pytest.mark.parametrize("seed", range(3))
def test_edits_are_those_of_the_definition(seed: int):
    """180 sentences of tiny alphabets, where many paths, repeated insertions and several alternatives compete."""
    rng = random.Random(seed)
    correct = 0
    for _ in range(60):
        source, hypothesis = (rng.choices("abc"[: rng.choice((2, 3))], k=rng.randint(0, 5)) for _ in range(2))
        edits, max_unchanged = random_edits(rng, source), rng.choice((0, 1, 2, 2))
        found = EditLattice(source, hypothesis).edits(edits, max_unchanged)
        right = sum(edit.correct for edit in found)
        assert (right, len(found)) == by_definition(source, hypothesis, edits, max_unchanged), (source, hypothesis)
        applied = tuple(Edit(edit.start, edit.end, "x", (edit.correction,)) for edit in found)
        assert correct_tokens(AnnotatedSentence(tuple(source), {0: applied})) == (hypothesis, 0)
        correct += right
    assert correct > 5  # the cases are about something


def test_annotators_are_those_of_the_definition():
    """A corpus of 100 sentences with one to three annotators, each sentence's chosen by the F of all up to it."""
    rng = random.Random(0)
    corpus, hypotheses = [], []
    for _ in range(100):
        source = tuple(rng.choices("abcd", k=rng.randint(1, 4)))
        corpus.append(AnnotatedSentence(source, {a: random_edits(rng, source) for a in range(rng.randint(1, 3))}))
        hypotheses.append(" ".join(rng.choices("abcd", k=rng.randint(0, 4))))
    expected, chosen = (0, 0, 0), []
    for annotated, hypothesis in zip(corpus, hypotheses, strict=True):
        options = []
        for annotator, edits in annotated.edits.items():
            correct, proposed = by_definition(annotated.tokens, hypothesis.split(), edits, 2)
            c, e, g = (a + b for a, b in zip(expected, (correct, proposed, len(edits)), strict=True))
            f = 1.25 * c / (e + 0.25 * g) if e or g else 1.0
            options.append((-f, -c, e + 0.25 * g, annotator, (c, e, g)))
        *_, annotator, expected = min(options)
        chosen.append(annotator)
    matched = max_match(hypotheses, corpus)
    assert [found.annotator for found in matched] == chosen
    result = sum((sentence.counts for sentence in matched), Counts())
    assert (result.correct, result.proposed, result.gold) == expected
    assert len(set(chosen)) == 3


TEXT = """S She go to school in bus yesterday .
A 4 5|||Prep|||by||on a|||REQUIRED|||-NONE-|||0
A 1 2|||Vt|||went|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

S The the ending is fine
A 0 1|||R:DET||||||REQUIRED|||-NONE-|||0
A 5 5|||M:PUNCT|||||||REQUIRED|||a remark|||0
A 0 6|||x|||outside|||REQUIRED|||-NONE-|||0


S Nothing here .
"""


def edited(*edits: Edit) -> AnnotatedSentence:
    return AnnotatedSentence(tuple("abcd"), {0: edits}, "gold.m2:1")


def test_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "gold.m2").write_text(TEXT, encoding="utf-8")
    first, second, third = read_m2(tmp_path / "gold.m2")
    assert first.tokens == ("She", "go", "to", "school", "in", "bus", "yesterday", ".")
    assert first.edits == {0: (Edit(1, 2, "Vt", (("went",),)), Edit(4, 5, "Prep", (("by",), ("on", "a")))), 1: ()}
    assert second.edits == {0: (Edit(0, 1, "R:DET", ((),)), Edit(5, 5, "M:PUNCT", (("|",),)))}  # bars of its own
    assert (third.edits, third.location) == ({}, f"{tmp_path}/gold.m2:12")
    assert "gold.m2: edits outside their sentences: 1, the first in line 9;" in capsys.readouterr().err
    assert " ".join(correct_tokens(first)[0]) == "She went to school by bus yesterday ."
    assert correct_tokens(first, annotator=1) == (list(first.tokens), 0)
    assert " ".join(correct_tokens(second)[0]) == "the ending is fine |"
    for text in ("S a\nS b", "S a\nA 0|||x|||y|||-|||-|||0"):
        with pytest.raises(UserError, match="gold.m2:2: "):
            list(iterate_sentences(text.splitlines(), "gold.m2"))


def test_of_overlapping_edits_the_later_one_is_left_out():
    overlapping = edited(Edit(0, 2, "x", (("A",),)), Edit(1, 3, "x", (("B",),)), Edit(2, 3, "x", (("C",),)))
    assert correct_tokens(overlapping) == (["A", "C", "d"], 1)
    assert correct_tokens(overlapping, annotator=1) == (list("abcd"), 0)
    adjacent = edited(Edit(0, 2, "x", (("A",),)), Edit(2, 2, "x", (("B",),)), Edit(2, 4, "x", ((),)))
    assert correct_tokens(adjacent) == (["A", "B"], 0)
    assert correct_tokens(edited(Edit(0, 2, "UNK", (("A",),)), Edit(1, 3, "x", (("B",),)))) == (["a", "B", "d"], 0)
