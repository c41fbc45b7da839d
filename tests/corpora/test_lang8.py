"""Raw Lang-8: which pairs an entry has, and their tokens."""

import json
from pathlib import Path

import pytest
from gec_stand_in import write_punkt

from ode_transformer.corpora.lang8 import WordTokenizer, entry_pairs

GOOD, BAD, JAPANESE = "I have been to the school.", "I has been at the school.", "私は学校に行きました。"


def entry(sentences: list[str], corrections: list[list[str]], language: str = "English") -> str:
    return json.dumps(["12", "34", language, "Japanese", sentences, corrections], ensure_ascii=False)


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        (entry([BAD], [[GOOD, "I went there."]]), [(BAD, GOOD), (BAD, "I went there.")]),
        (entry([BAD, GOOD], [[GOOD], []]), [(BAD, GOOD), (GOOD, GOOD)]),  # not corrected: a pair with itself
        (entry([BAD, GOOD], [[GOOD], [""]]), [(BAD, GOOD), (GOOD, GOOD)]),
        (entry([GOOD, GOOD], [[], []]), []),  # nobody read the entry
        (entry([BAD], [[GOOD]], "French"), []),
        (entry([JAPANESE, BAD], [[GOOD], [JAPANESE, GOOD]]), [(BAD, GOOD)]),  # neither side in Japanese
        (
            entry([BAD], [["I [f-red]have[/f-red] [sline]has[/sline] been [f-blue]so.[/sline]"]]),
            [(BAD, "I have  been so.")],
        ),
        ('["1", "2", "English", "Japanese", 5, [[]]]', []),
    ],
)
def test_pairs_of_an_entry(line: str, pairs: list[tuple[str, str]]) -> None:
    assert entry_pairs(line) == pairs


@pytest.fixture(scope="module")
def punkt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_punkt(tmp_path_factory.mktemp("punkt") / "punkt_tab.zip")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("He said “I don’t know”, and left.", "He said `` I do n't know , '' and left ."),
        ("Mr. Smith left. She came…", "Mr. Smith left . She came ..."),  # two sentences: the first loses its full stop
        ("It cost\t$5 (50%)!\x07", "It cost $ 5 ( 50 % ) !"),
    ],
)
def test_words_are_those_of_nltk_after_plain_punctuation(punkt: Path, text: str, tokens: str) -> None:
    assert WordTokenizer(punkt)(text) == tokens
