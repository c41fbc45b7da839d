"""M2 files: what is read, what is refused and how edits are applied."""

from pathlib import Path

import pytest

from ode_transformer.metrics.m2_file import (
    AnnotatedSentence,
    Edit,
    correct_tokens,
    has_overlapping_edits,
    iterate_sentences,
    read_m2,
)
from ode_transformer.support.errors import UserError

TEXT = """S She go to school in bus yesterday .
A 4 5|||Prep|||by||on a|||REQUIRED|||-NONE-|||0
A 1 2|||Vt|||went|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

S The the ending is fine
A 0 1|||R:DET||||||REQUIRED|||-NONE-|||0
A 5 5|||M:PUNCT|||.|||REQUIRED|||a remark|||0


S Nothing here .
"""


def sentences(text: str) -> list[AnnotatedSentence]:
    return list(iterate_sentences(text.splitlines(), "gold.m2"))


def edited(*edits: Edit) -> AnnotatedSentence:
    return AnnotatedSentence(tuple("abcd"), {0: edits}, "gold.m2:1")


def test_what_is_read(tmp_path: Path):
    (tmp_path / "gold.m2").write_text(TEXT, encoding="utf-8")
    first, second, third = read_m2(tmp_path / "gold.m2")
    assert first.tokens == ("She", "go", "to", "school", "in", "bus", "yesterday", ".")
    assert first.edits == {
        0: (Edit(1, 2, "Vt", (("went",),)), Edit(4, 5, "Prep", (("by",), ("on", "a")))),
        1: (),
    }
    assert second.edits == {0: (Edit(0, 1, "R:DET", ((),)), Edit(5, 5, "M:PUNCT", ((".",),)))}
    assert (third.edits, third.location) == ({}, f"{tmp_path}/gold.m2:11")


def test_a_correction_may_have_bars_in_it():
    (sentence,) = sentences("S a b\nA 1 2|||R:PUNCT|||||||REQUIRED|||-NONE-|||0")
    assert sentence.edits[0] == (Edit(1, 2, "R:PUNCT", (("|",),)),)


def test_edits_are_applied():
    first, second, third = sentences(TEXT)
    assert " ".join(correct_tokens(first)) == "She went to school by bus yesterday ."
    assert correct_tokens(first, annotator=1) == list(first.tokens)
    assert " ".join(correct_tokens(second)) == "the ending is fine ."
    assert correct_tokens(third) == list(third.tokens)


def test_of_overlapping_edits_the_later_one_is_left_out():
    overlapping = edited(Edit(0, 2, "x", (("A",),)), Edit(1, 3, "x", (("B",),)), Edit(2, 3, "x", (("C",),)))
    assert correct_tokens(overlapping) == ["A", "C", "d"]
    assert has_overlapping_edits(overlapping)
    assert not has_overlapping_edits(overlapping, annotator=1)
    adjacent = edited(Edit(0, 2, "x", (("A",),)), Edit(2, 2, "x", (("B",),)), Edit(2, 4, "x", ((),)))
    assert not has_overlapping_edits(adjacent)
    assert not has_overlapping_edits(edited(Edit(0, 2, "UNK", (("A",),)), Edit(1, 3, "x", (("B",),))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A 0 1|||x|||y|||-|||-|||0", "gold.m2:1: a line S"),
        ("S a\nA 0 1|||x|||y|||0", "gold.m2:2: an edit is A start end"),
        ("S a\nA 0|||x|||y|||-|||-|||0", "gold.m2:2: an edit is A start end"),
        ("S a\nS b", "gold.m2:2: .* an empty line between sentences"),
    ],
)
def test_what_is_refused(text: str, message: str):
    with pytest.raises(UserError, match=message):
        sentences(text)


@pytest.mark.parametrize("span", ["0 3", "1 0", "-1 1"])
def test_an_edit_outside_its_sentence_is_left_out_with_a_warning(span: str, capsys):
    (sentence,) = sentences(f"S a b\nA {span}|||x|||y|||-|||-|||0\nA 1 2|||x|||B|||-|||-|||0")
    assert sentence.edits == {0: (Edit(1, 2, "x", (("B",),)),)}
    assert capsys.readouterr().err == f"gold.m2:2: left out: the span {span} lies outside the sentence of 2 tokens\n"
