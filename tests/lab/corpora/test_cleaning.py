"""The quicker tokenizer beside sacremoses' own."""

from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from ode_transformer.lab.corpora.cleaning import Tokenizer

OURS, THEIRS = Tokenizer("en"), MosesTokenizer("en")


@settings(deadline=None, max_examples=15)
@given(st.text(st.sampled_from("aZäß.. .,'-$1\u00a0\u0301я"), max_size=20), st.text(max_size=3))
def test_tokens_of_any_text(text: str, letters: str) -> None:
    line = f"Mr. Ruiz left the U.S. embassy at 5 p.m. and went home. {text} no. 6 is so... was."
    assert OURS.tokenize(line, escape=False) == THEIRS.tokenize(line, escape=False)
    assert OURS.islower(letters) == THEIRS.islower(letters)
    assert OURS.isanyalpha(letters) == THEIRS.isanyalpha(letters)
