"""Steps of preparation, and the choice of pairs, beside the rule of Moses' prepare_pairs-corpus-n."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ode_transformer.corpora.cleaning import Keep, TextPreparation, prepare_pairs


def cleaned(line: str, language: str = "en", **steps: object) -> str:
    return prepare_pairs(TextPreparation(**steps), (language, language), [(line, line)])[0][0]


@pytest.mark.parametrize(
    ("line", "steps", "expected"),
    [
        ("  one\u00a0two\u2028three\tfour ", {}, "one two three four"),
        ("", {"normalise": True, "tokenise": True}, ""),
        ("“Don’t”", {"normalise": True}, '"Don\'t"'),
        ("a\u0007b\u200bc\ue000d", {"printable": True}, "a b c d"),
        ("It's a well-known fact.", {"tokenise": True}, "It &apos;s a well-known fact ."),
        ("well-known", {"tokenise": True, "split_dashes": True}, "well @-@ known"),
        ("A|B & C", {"tokenise": True}, "A &#124; B &amp; C"),  # so that Moses' separator of factors is in no text
        ("ÄÖ E", {"lowercase": True}, "äö e"),
        ("“So”, HE said", {"normalise": True, "tokenise": True, "lowercase": True}, "&quot; so , &quot; he said"),
    ],
)
def test_steps(line: str, steps: dict, expected: str) -> None:
    assert cleaned(line, **steps) == expected


def test_romanian_letters_of_romanian_alone() -> None:
    old, new = "Ştiinţă, peşte", "Știință, pește"
    assert cleaned(old, "ro", romanian="respell") == new
    assert cleaned(old, "ro", romanian="plain") == "Stiinta, peste"
    assert cleaned(old, "en", romanian="plain") == old


def test_each_side_goes_through_the_steps_of_its_language() -> None:
    steps = TextPreparation(tokenise=True, romanian="respell")
    # French divides after an apostrophe, English before it.
    assert prepare_pairs(steps, ("en", "fr"), [("l'air", "l'air")]) == [("l &apos;air", "l&apos; air")]


def test_dashes_are_divided_in_tokens_only() -> None:
    with pytest.raises(ValidationError, match="split_dashes needs tokenise: true"):
        TextPreparation(split_dashes=True)


@pytest.mark.parametrize(
    ("source", "target", "is_kept"),
    [(2, 3, True), (3, 2, True), (2, 4, False), (4, 2, False), (0, 1, False), (1, 0, False), (0, 0, False),
     (10, 10, True), (11, 10, False), (10, 11, False), (1, 1, True)],
)  # fmt: skip
def test_which_pairs_are_kept(source: int, target: int, is_kept: bool) -> None:
    assert Keep(unit="words", max=10, ratio=1.5)(" ".join("a" * source), " ".join("b" * target)) is is_kept


@given(*[st.integers(0, 12)] * 2, *[st.integers(1, 12)] * 2, st.sampled_from([1, 1.5, 2.0, 9]))
def test_the_rule_of_clean_corpus_n(source: int, target: int, least: int, most: int, ratio: float) -> None:
    """A line is dropped if it is empty, too short or too long, or if one side is longer than RATIO times the other."""
    lengths = (source, target)
    dropped = 0 in lengths or min(lengths) < least or max(lengths) > most
    dropped = dropped or source / target > ratio or target / source > ratio
    keep = Keep(unit="words", min=least, max=most, ratio=ratio)
    assert keep(" ".join("a" * source), " ".join("b" * target)) is not dropped
