"""The preparations of each data set: what becomes of traps in the text, and that each can be built."""

from functools import cache
from pathlib import Path

import pytest
from commands_for_tests import PAIRS
from recipes_for_tests import counts_of, write_raw

from ode_transformer.lab.corpora.cleaning import prepare_pairs
from ode_transformer.lab.recipes.options import find_recipe, recipe_names
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import Recipe, read_recipe

PREPARATIONS = [(name, other) for name in recipe_names() for other in read_recipe(find_recipe(name)).preparations]


@cache
def prepared(name: str, preparation: str | None) -> Recipe:
    return read_recipe(find_recipe(name)).prepared_as(preparation)


@pytest.mark.parametrize(("name", "preparation"), PREPARATIONS)
def test_each_preparation_can_be_built(name: str, preparation: str, tmp_path: Path) -> None:
    recipe = prepared(name, preparation)
    counts = recipe.corpus.build(write_raw(recipe, tmp_path / "raw"), tmp_path / "corpus", 1)
    if getattr(recipe.corpus, "keep", None) is None or recipe.corpus.keep.unit == "words":
        assert counts == counts_of(recipe)
    assert min(counts.values()) > 0


QUOTED = "„Rock-Konzert“ – 3\u00a0000 Gäste’s"
PLAIN = "&quot; Rock @-@ Konzert &quot; - 3,000 Gäste &apos; s"


@pytest.mark.parametrize(
    ("preparation", "training", "test"),
    [
        (None, "„ Rock-Konzert “ – 3 000 Gäste ’ s", "„ Rock-Konzert “ – 3 000 Gäste ’ s"),
        ("fairseq", PLAIN, "„ Rock @-@ Konzert “ – 3 000 Gäste ’ s"),
        ("fairseq_pieces", PLAIN, "„ Rock @-@ Konzert “ – 3 000 Gäste ’ s"),
        ("macaron", PLAIN, "„ Rock @-@ Konzert “ – 3 000 Gäste ’ s"),
        ("xu_2020", PLAIN.replace(" @-@ ", "-"), "„ Rock-Konzert “ – 3 000 Gäste ’ s"),
    ],
)
def test_german_quotations_hyphens_and_numbers(preparation: str | None, training: str, test: str) -> None:
    corpus = prepared("wmt14_en_de", preparation).corpus
    for text, tokens in ((corpus.text, training), (corpus.test_text or corpus.text, test)):
        assert prepare_pairs(text, ("en", "de"), [("x", QUOTED)]) == [("x", tokens)]


@pytest.mark.parametrize("preparation", [None, "fairseq", "macaron"])
@pytest.mark.parametrize(
    ("source_words", "target_words", "kept"),
    [(10, 16, True), (1, 9, True), (1, 10, False), (80, 80, True), (81, 80, False), (80, 81, False), (0, 1, False)],
)
def test_words_are_filtered_before_merges_as_by_clean_corpus_n(
    preparation: str | None, source_words: int, target_words: int, kept: bool
) -> None:
    keep = prepared("wmt14_en_de", preparation).corpus.keep
    assert keep.unit == "words"
    assert keep("a " * source_words, "b " * target_words) == kept
    assert prepared("wmt14_en_de", "fairseq_pieces").corpus.keep.unit == "pieces"


def data(folder: Path, hold_out: bool) -> RecipeData:
    """WMT'14 En-De in small: 30 merges; pairs of 1 to 60 pieces are kept, unless one side is 1.2 times as long."""
    recipe = read_recipe(find_recipe("wmt14_en_de")).prepared_as("fairseq_pieces")
    keep = recipe.corpus.keep.model_copy(update={"ratio": 1.2, "max": 60})
    corpus = recipe.corpus.model_copy(update={"keep": keep} | ({"hold_out": 9, "valid": []} if hold_out else {}))
    vocabulary = recipe.vocabulary.model_copy(update={"merges": 30})
    made = RecipeData(recipe.model_copy(update={"corpus": corpus, "vocabulary": vocabulary}), folder)
    made.corpus.mkdir()
    for split in ("train", "valid", "test"):
        for side, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
            (made.corpus / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
    return made


@pytest.mark.parametrize("hold_out", [False, True])
def test_pieces_choose_from_the_training_text(tmp_path: Path, hold_out: bool) -> None:
    made = data(tmp_path, hold_out)
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
