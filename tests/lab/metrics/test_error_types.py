"""Counting by type of error on edits written by hand, and ERRANT's part by a stand-in with its signatures."""

import difflib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ode_transformer.cli.command import main
from ode_transformer.lab.metrics.error_types import TypedEdit, count_matches, count_types
from ode_transformer.lab.metrics.max_match import Counts

GOLD = """S A boy ran at road .
A 3 4|||Prep|||along|||REQUIRED|||-NONE-|||0
A 4 4|||ArtOrDet|||the||a|||REQUIRED|||-NONE-|||0
A 2 3|||Um|||-NONE-|||REQUIRED|||-NONE-|||0

S My hat .
A 1 2|||Nn|||hats|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1
"""
OUTPUT = "The boy ran along the road .\nMy hat .\n"


def edits(*texts: str) -> list[TypedEdit]:
    """Return edits such as ``3-4 on R:PREP``."""
    fields = [text.replace("-", " ", 1).split(" ") for text in texts]
    return [TypedEdit(int(start), int(end), correction, kind) for start, end, correction, kind in fields]


def test_correct_edits_count_for_the_type_of_the_reference():
    system = edits("0-1 The R:DET", "3-4 along R:OTHER", "5-6 roads R:NOUN:NUM")
    reference = edits("3-4 along R:PREP", "4-4 the M:DET", "5-6 streets R:NOUN")
    assert count_matches(system, reference) == {
        "R:DET": Counts(proposed=1),
        "R:PREP": Counts(1, 1, 1),
        "R:NOUN:NUM": Counts(proposed=1),
        "M:DET": Counts(gold=1),
        "R:NOUN": Counts(gold=1),
    }


def test_annotators_are_chosen_by_the_score_of_all_sentences_up_to_theirs():
    right, other, wrong = edits("0-1 a X"), edits("0-1 b X", "1-2 c Y"), edits("0-1 z Z")
    assert count_types([right], [[other, right]]) == {"X": Counts(1, 1, 1)}
    # A silent system has the annotator with nothing to correct.
    assert count_types([[]], [[right, []]]) == {}
    # F is 0 with both: the one with fewer missed edits.
    assert count_types([wrong], [[other, right]]) == {"Z": Counts(proposed=1), "X": Counts(gold=1)}


class Annotator:
    """What ERRANT 3.0.2's Annotator has of the same names, with types that say what happened and how long it is."""

    def __init__(self) -> None:
        self.parsed: list[str] = []
        self.nlp = SimpleNamespace(meta={"lang": "en", "name": "core_web_sm", "version": "3.8.0"})

    def parse(self, text: str, tokenise: bool = False) -> list[str]:
        assert not tokenise
        self.parsed.append(text)
        return text.split()

    def annotate(self, orig: list[str], cor: list[str]) -> list[SimpleNamespace]:
        opcodes = difflib.SequenceMatcher(None, orig, cor, autojunk=False).get_opcodes()
        kinds = {"insert": "M", "delete": "U", "replace": "R"}
        return [
            SimpleNamespace(o_start=i, o_end=j, c_str=" ".join(cor[k:m]), type=f"{kinds[tag]}:{j - i}")
            for tag, i, j, k, m in opcodes
            if tag != "equal"
        ]


def test_scores_and_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The reference's edits, then the correct and wrong ones of each system; the plot has the most frequent type."""
    annotator = Annotator()
    errant = SimpleNamespace(__version__="3.0.2", load=lambda lang, nlp=None: annotator)
    monkeypatch.setitem(sys.modules, "errant", errant)
    gold = tmp_path / "gold.m2"
    gold.write_text(GOLD)
    for name, output in (("a", OUTPUT), ("b", "A boy ran along the road .\nMy big hats .\n")):
        (tmp_path / name).write_text(output)
    assert main(["score", "--metric", "errant", "--gold", str(gold), "--hypotheses", str(tmp_path / "a")]) == 0
    # System: 0-1 The (R:1), 3-4 along the (R:1). Reference: 3-4 along the. "ran" is marked as unclear, and stays.
    settings = "2 lines; errant:3.0.2|spacy:en_core_web_sm-3.8.0|annotators:2|beta:0.5"
    assert capsys.readouterr().out.splitlines() == [
        f"P 50.00 (1 of 2 system edits correct; {settings})",
        f"R 100.00 (1 of 1 gold edits found; {settings})",
        f"F0.5 55.56 (1 correct, 2 system and 1 gold edits; {settings})",
        f"F0.5 R:1 55.56 (P 50.00, R 100.00, 1 correct, 2 system and 1 gold edits; {settings})",
    ]
    annotator.parsed.clear()
    systems = [str(tmp_path / name) for name in "ab"]
    files = ["--output", str(tmp_path / "plot.png"), "--csv", str(tmp_path / "table.csv")]
    assert main(["analyse", "error-types", *systems, "--gold", str(gold), "--types", "1", *files]) == 0
    assert (tmp_path / "table.csv").read_text().splitlines() == [
        'type,reference,"a, correct","a, wrong","b, correct","b, wrong"',
        "R:1,1,1,1,1,1",
    ]
    assert capsys.readouterr().out.splitlines()[2:] == ["| R:1 | 1 | 1 | 1 | 1 | 1 |"]
    assert len(annotator.parsed) == 9  # two sources, and texts of their three annotations and four outputs, each once
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
