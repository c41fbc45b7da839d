"""Steps of preparation, the quicker tokenizer beside sacremoses' own, and the rule of Moses' clean-corpus-n."""

import pytest
from commands_for_tests import PAIRS
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from ode_transformer.lab.corpora.cleaning import TextPreparation, Tokenizer, prepare_pairs


def cleaned(line: str, language: str = "en", **steps: object) -> str:
    return prepare_pairs(TextPreparation(**steps), (language, language), [(line, line)])[0][0]


@pytest.mark.parametrize(
    ("line", "steps", "expected"),
    [
        ("  one\u00a0two\u2028three\tfour ", {}, "one two three four"),
        ("“Don’t”", {"normalise": True}, '"Don\'t"'),
        ("a\u0007b\u200bc\ue000d", {"printable": True}, "a b c d"),
        ("well-known", {"tokenise": True, "split_dashes": True}, "well @-@ known"),
        ("A|B & C", {"tokenise": True}, "A &#124; B &amp; C"),  # so that Moses' separator of factors is in no text
        ("“So”, HE said", {"normalise": True, "tokenise": True, "lowercase": True}, "&quot; so , &quot; he said"),
    ],
)
def test_steps(line: str, steps: dict, expected: str) -> None:
    assert cleaned(line, **steps) == expected


def test_each_side_goes_through_the_steps_of_its_language() -> None:
    # French divides after an apostrophe, English before it; only Romanian loses its diacritics.
    steps = TextPreparation(tokenise=True, romanian="plain")
    assert prepare_pairs(steps, ("en", "fr"), [("l'air", "l'air")]) == [("l &apos;air", "l&apos; air")]
    assert prepare_pairs(steps, ("fr", "ro"), [("Știinţă", "Știinţă")]) == [("Știinţă", "Stiinta")]


LINES = [
    "Mr. Ruiz lost. He left the U.S. embassy at 5 p.m. and went home.",
    "No. 5 is out. no. 6 isn't. It's 3.5. Über alles. über z.B. so... was.",
    "L'eau est là. C'est M. Dupont. Ça va.",
    *(" ".join(side) for side in zip(*PAIRS, strict=True)),
]
OURS = {language: Tokenizer(language) for language in ("en", "de", "fr")}
THEIRS = {language: MosesTokenizer(language) for language in OURS}


@pytest.mark.parametrize("language", OURS)
def test_tokens_of_several_sentences_in_a_line(language: str) -> None:
    for line in LINES:
        assert OURS[language].tokenize(line) == THEIRS[language].tokenize(line)


@settings(deadline=None, max_examples=30)
@given(st.text(st.sampled_from("aZäß.. .,'-$1\u00a0\u0301я"), max_size=20), st.text(max_size=3))
def test_tokens_of_any_text(text: str, letters: str) -> None:
    assert OURS["en"].tokenize(text, escape=False) == THEIRS["en"].tokenize(text, escape=False)
    assert OURS["en"].islower(letters) == THEIRS["en"].islower(letters)
    assert OURS["en"].isanyalpha(letters) == THEIRS["en"].isanyalpha(letters)
