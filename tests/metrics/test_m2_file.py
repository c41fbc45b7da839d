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
    assert "gold.m2:9: left out: the span 0 6 lies outside the sentence of 5 tokens" in capsys.readouterr().err
    assert " ".join(correct_tokens(first)) == "She went to school by bus yesterday ."
    assert correct_tokens(first, annotator=1) == list(first.tokens)
    assert " ".join(correct_tokens(second)) == "the ending is fine |"
    for text in ("S a\nS b", "S a\nA 0|||x|||y|||-|||-|||0"):
        with pytest.raises(UserError, match="gold.m2:2: "):
            list(iterate_sentences(text.splitlines(), "gold.m2"))


def test_of_overlapping_edits_the_later_one_is_left_out():
    overlapping = edited(Edit(0, 2, "x", (("A",),)), Edit(1, 3, "x", (("B",),)), Edit(2, 3, "x", (("C",),)))
    assert correct_tokens(overlapping) == ["A", "C", "d"]
    assert has_overlapping_edits(overlapping)
    assert not has_overlapping_edits(overlapping, annotator=1)
    adjacent = edited(Edit(0, 2, "x", (("A",),)), Edit(2, 2, "x", (("B",),)), Edit(2, 4, "x", ((),)))
    assert not has_overlapping_edits(adjacent)
    assert not has_overlapping_edits(edited(Edit(0, 2, "UNK", (("A",),)), Edit(1, 3, "x", (("B",),))))
