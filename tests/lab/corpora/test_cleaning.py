"""Steps of preparation, the quicker tokenizer beside sacremoses' own, and the rule of Moses' clean-corpus-n."""

import pytest
from commands_for_tests import PAIRS
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from ode_transformer.lab.corpora.cleaning import Tokenizer

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
