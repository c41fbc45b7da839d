"""Translations of a trained model by fairseq-interactive and from Python."""

from pathlib import Path

import pytest
from commands_for_tests import USER_DIR, Text, lines_of, succeed
from plain_models import PAIRS

from ode_transformer.models import ODETransformerModel

pytestmark = pytest.mark.slow


TYPED = (PAIRS[0][0], "", "The dog reads a book in Zürich ☃.", PAIRS[3][0])


def test_what_is_typed_is_translated_line_by_line_here_and_from_python(text: Text, learned: Path) -> None:
    common = ("--user-dir", USER_DIR, "--cpu", "--path", learned)
    common += ("--beam", 5, "--max-len-a", 0, "--max-len-b", 20)
    pieces = ("--bpe", "sentencepiece", "--sentencepiece-model", text.pieces)
    lines = "".join(f"{line}\n" for line in TYPED)
    output = succeed("interactive", text.data, *common, *pieces, stdin=lines)
    translations = [fields[1] for _, fields in sorted(lines_of(output, "D").items())]
    assert len(lines_of(output, "H")) == len(translations) == len(TYPED)
    options = {"data_name_or_path": str(text.data), "bpe": "sentencepiece", "sentencepiece_model": str(text.pieces)}
    model = ODETransformerModel.from_pretrained(str(learned.parent), "checkpoint_last.pt", **options)
    assert model.translate(list(TYPED), max_len_b=20) == translations
    assert model.translate(TYPED[0], max_len_b=20) == translations[0]
