"""Pieces of the training text are chosen by their length, before or after validation pairs are held out."""

from pathlib import Path

import pytest
from plain_models import PAIRS

from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import read_recipe


@pytest.mark.parametrize("hold_out", [False, True])
def test_pieces_choose_from_the_training_text(tmp_path: Path, hold_out: bool) -> None:
    """WMT'14 En-De in small: 30 merges; pairs of 1 to 60 pieces are kept, unless one side is 1.2 times as long."""
    recipe = read_recipe(find_recipe("wmt14_en_de")).prepared_as("fairseq_pieces")
    keep = recipe.corpus.keep.model_copy(update={"ratio": 1.2, "max": 60})
    corpus = recipe.corpus.model_copy(update={"keep": keep} | ({"hold_out": 9, "valid": []} if hold_out else {}))
    vocabulary = recipe.vocabulary.model_copy(update={"merges": 30})
    made = RecipeData(recipe.model_copy(update={"corpus": corpus, "vocabulary": vocabulary}), tmp_path)
    made.corpus.mkdir()
    for split in ("train", "valid", "test"):
        for side, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
            (made.corpus / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
    made._encode_pieces(1)
    lines = {path.name: path.read_text().splitlines() for path in made.pieces.glob("*.*")}
    both = zip(lines["test.en"], lines["test.de"], strict=True)
    lengths = [(len(one.split()), len(other.split())) for one, other in both]
    kept = sum(max(pair) <= 60 and max(pair) <= 1.2 * min(pair) for pair in lengths)
    assert 0 < kept < len(PAIRS)
    counts = {split: len(lines[f"{split}.en"]) for split in ("train", "valid", "test")}
    assert counts == {"train": kept, "valid": kept if hold_out else len(PAIRS), "test": len(PAIRS)}
    assert lines["test.en"][0].replace("@@ ", "") == PAIRS[0][0]
    assert made.text == made.pieces
