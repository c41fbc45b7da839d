"""Parallel corpora from raw files: what is held out, what is left out, and how test sets are written."""

from pathlib import Path
from typing import Any

import pytest

from ode_transformer.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.support.errors import UserError

SHORT = [(f"Quelle {number}", f"Ziel {number}") for number in range(1, 10)]
UNEQUAL = ("viel zu lang für dies", "short")


class Raw:
    """Raw files by the names of their sources, and the corpus that is built from them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder / "raw", {}
        self.folder.mkdir()
        self.output = folder / "corpus"
        self.write("train", SHORT)
        self.write("valid", [UNEQUAL, ("", "nothing"), SHORT[0]])
        self.write("test", [("„Es geht’s“", "“It’s well-known”"), UNEQUAL])

    def write(self, name: str, pairs: list[tuple[str, str]]) -> None:
        for side, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
            path = self.files[f"{name}_{side}"] = self.folder / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def corpus(self, **settings: Any) -> ParallelCorpus:
        values = {"valid": [location("valid")], "test": {"set": [location("test")]}, "text": {}} | settings
        return ParallelCorpus.model_validate(
            {"kind": "parallel", "source": "de", "target": "en", "train": [location("train")], **values}
        )

    def build(self, **settings: Any) -> dict[str, int]:
        return self.corpus(**settings).build(self.files, self.output, 1)

    def lines(self, name: str) -> list[str]:
        return (self.output / name).read_text(encoding="utf-8").split("\n")[:-1]


def location(name: str, **settings: Any) -> dict[str, Any]:
    return {"source_file": f"{name}_de", "target_file": f"{name}_en", **settings}


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def keep(unit: str = "words") -> dict[str, Any]:
    return {"unit": unit, "max": 4, "ratio": 1.5}


def test_every_split_has_its_files(raw: Raw) -> None:
    assert raw.build() == {"train": 9, "valid": 3, "test": 2}
    assert sorted(path.name for path in raw.output.iterdir()) == sorted(
        ["raw.test.en", *(f"{split}.{side}" for split in ("train", "valid", "test") for side in ("de", "en"))]
    )
    assert (raw.lines("train.de"), raw.lines("train.en")) == tuple(map(list, zip(*SHORT, strict=True)))


@pytest.mark.parametrize(("unit", "held_out"), [("words", [3, 6, 9]), ("pieces", [2, 5, 8])])
def test_where_pairs_are_held_out(raw: Raw, unit: str, held_out: list[int]) -> None:
    """Every third of those that words choose, as fairseq prepares IWSLT'14; of all, if pieces choose later, as WMT."""
    raw.write("train", [UNEQUAL, *SHORT])
    raw.build(keep=keep(unit), valid=[], hold_out=3)
    assert raw.lines("valid.en") == [f"Ziel {number}" for number in held_out]
    assert not set(raw.lines("valid.en")) & set(raw.lines("train.en"))
    assert len(raw.lines("train.en")) == (6 if unit == "words" else 7)


def test_parts_follow_each_other_and_test_sets_have_numbers(raw: Raw) -> None:
    tests = {"a": [location("test")], "b": [location("valid"), location("test")]}
    counts = raw.build(train=[location("train"), location("valid")], test=tests)
    assert counts == {"train": 12, "valid": 3, "test": 2, "test1": 5}
    assert raw.lines("train.en") == [*(target for _, target in SHORT), "short", "nothing", "Ziel 1"]
    assert raw.corpus(test={"a": [location("test")], "b": [location("valid")]}).tests == ["a", "b"]


def test_test_sets_may_have_their_own_steps_and_references_stay_as_published(raw: Raw) -> None:
    text = {"normalise": True, "tokenise": True}
    raw.build(text=text)
    assert raw.lines("test.en")[0] == "&quot; It &apos;s well-known &quot;"
    raw.build(text=text, test_text={"tokenise": True}, test={"set": [location("test", straight_apostrophes=True)]})
    assert raw.lines("test.en")[0] == "“ It &apos;s well-known ”"
    assert raw.lines("raw.test.en")[0] == "“It’s well-known”"


def test_further_references(raw: Raw) -> None:
    raw.write("second", [("", "It’s known"), ("", "Brief")])
    raw.build(text={"lowercase": True}, references={"set": [location("second", straight_apostrophes=True)]})
    assert raw.lines("tokens1.test.en") == ["it's known", "brief"]
    assert raw.lines("raw1.test.en") == ["It’s known", "Brief"]


def test_a_broken_file_leaves_nothing(raw: Raw) -> None:
    with pytest.raises(UserError, match="no example for the valid split"):
        raw.build(valid=[], hold_out=100)
    raw.files["test_en"].write_text("one line\n")
    with pytest.raises(UserError, match=r"sides of different length: .*test\.de has 2, .*test\.en has 1"):
        raw.build()
    assert list(raw.output.parent.iterdir()) == [raw.folder]
