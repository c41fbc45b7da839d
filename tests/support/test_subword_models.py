"""The division of words into pieces."""

from pathlib import Path

import pytest
from subword_nmt import apply_bpe

from ode_transformer.support import subword_models
from ode_transformer.support.subword_models import SubwordEncoder


def test_the_memory_of_divided_words_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = tmp_path / "bpecodes"
    codes.write_text("#version: 0.2\na b\n")
    made = []

    class Recorded(apply_bpe.BPE):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(apply_bpe, "BPE", Recorded)
    monkeypatch.setattr(subword_models, "CACHED_WORDS", 10)
    encoder = SubwordEncoder("subword_nmt", codes)
    sizes = []
    for number in range(100):
        assert encoder.encode(f"ab{number}x ab") == f"ab@@ {'@@ '.join(str(number))}@@ x a@@ b"
        sizes.append(len(made[0].cache))
    assert max(sizes) <= 12
