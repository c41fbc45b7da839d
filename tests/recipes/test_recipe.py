"""What a recipe's file may say, and how its parts apply to an architecture."""

from pathlib import Path

import pytest

from ode_transformer.recipes.options import RunOptions
from ode_transformer.recipes.recipe import read_recipe
from ode_transformer.recipes.recipe_files import find_recipe, recipe_names
from ode_transformer.recipes.workflow import recipe_data
from ode_transformer.support.errors import UserError

GOOD = """\
title: Captions
corpus:
  kind: parallel
  source: en
  target: de
  train: [{source_file: a, target_file: b}]
  valid: [{source_file: a, target_file: b}]
  test: {first: [{source_file: a, target_file: b}]}
  text: {tokenise: true}
vocabulary: {kind: words}
arch: ode_transformer_rk2_tiny
tokens_per_update: 1000
average: {last: 5}
train: {lr: 0.1, dropout: 0.1, max-tokens: 500}
size: {encoder-layers: 3}
score:
  - {names: [BLEU], metric: bleu}
architectures:
  "macaron*": {train: {lr: 0.2}, tokens_per_update: 2000}
  "macaron*_big": {train: {dropout: 0.3}}
variants:
  released: {"macaron*": {train: {lr: 0.4}, average: {best: true}}}
  capitals: {"*": {preparation: pieces, score: [{names: [Cased], metric: bleu}]}}
preparations:
  pieces: {corpus: {text: {lowercase: true}, valid: null, hold_out: 7}, vocabulary: {min_count: 3}, counts: {train: 9}}
expected:
  - {table: one, system: this, arch: macaron, scores: {BLEU: 30.0}}
sources: {a: texts/a.en, b: texts/b.de}
"""


@pytest.fixture
def recipe_of(tmp_path: Path):
    def write(text: str):
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return read_recipe(path)

    return write


def test_an_architecture_takes_what_matches_it_the_later_over_the_earlier(recipe_of) -> None:
    recipe = recipe_of(GOOD)
    for arch, expected in {
        "ode_transformer_rk4": (1000, {"lr": 0.1, "dropout": 0.1, "max-tokens": 500}),
        "macaron": (2000, {"lr": 0.2, "dropout": 0.1, "max-tokens": 500}),
        "macaron_big": (2000, {"lr": 0.2, "dropout": 0.3, "max-tokens": 500}),
    }.items():
        made = recipe.for_arch(arch)
        assert (made.arch, made.tokens_per_update, made.train) == (arch, *expected)


def test_the_size_is_the_default_architectures_alone(recipe_of) -> None:
    recipe = recipe_of(GOOD)
    assert recipe.for_arch(None).train["encoder-layers"] == 3
    assert "encoder-layers" not in recipe.for_arch(recipe.arch).train
    assert [bool(recipe.for_arch(arch).size) for arch in (None, recipe.arch, "macaron")] == [False, True, False]


def test_a_variant_comes_last(recipe_of) -> None:
    made = recipe_of(GOOD).for_arch("macaron_big", "released")
    assert made.train == {"lr": 0.4, "dropout": 0.3, "max-tokens": 500}
    assert made.average.best


def test_a_variant_can_prepare_and_score_the_data_in_another_way(recipe_of) -> None:
    made = recipe_of(GOOD).for_arch("macaron", "capitals")
    assert (made.preparation, made.counts, made.score_titles) == ("pieces", {"train": 9}, ["Cased"])
    assert made.corpus.text.model_dump(exclude_defaults=True) == {"lowercase": True}
    assert (made.corpus.hold_out, made.corpus.valid, made.corpus.target) == (7, [], "de")
    assert (made.vocabulary.kind, made.vocabulary.min_count) == ("words", 3)
    assert recipe_data(made, "data.yaml", RunOptions()).folder == Path("experiments/data-pieces")
    plain = recipe_of(GOOD).for_arch("macaron")
    assert plain.with_data_of(made).corpus == made.corpus != plain.corpus
    assert recipe_data(plain, "data.yaml", RunOptions()).folder == Path("experiments/data")


@pytest.mark.parametrize(("arch", "known"), [("macaron", "released, capitals"), ("ode_transformer_rk2", "capitals")])
def test_a_variant_that_is_not_there(recipe_of, arch: str, known: str) -> None:
    with pytest.raises(UserError, match=f"--variant other: for {arch} there is {known}"):
        recipe_of(GOOD).for_arch(arch, "other")


def test_a_recipes_own_source_never_has_the_file_of_an_official_one(recipe_of) -> None:
    own = "sources: {czeng10_0: {file: czeng10/a.tar, urls: ['http://a.b/c'], licence: none}, a: texts/a.en"
    recipe = recipe_of(GOOD.replace("sources: {a: texts/a.en", own))
    assert recipe.source_list()["czeng10_0"].file == "recipes/recipe/czeng10/a.tar"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Captions", "titel: Captions", "titel: Extra inputs are not permitted"),
        ("last: 5", "last: 5, best: true", "average: say either last: N or best: true"),
        ("last: 5", "last: 5, by: update", "average: by: update goes with every: N"),
        ("kind: words", "kind: letters", "vocabulary.*'words', 'subword_nmt', 'sentencepiece'"),
        ("tokenise: true", "split_dashes: true", "corpus.*text: .*split_dashes needs tokenise: true"),
        ("  valid: [{source_file: a, target_file: b}]\n", "", "corpus.*: say either valid: .* or hold_out: N"),
        ("BLEU: 30.0", "chrF: 30.0", "expected.0.scores.chrF: no score has this name; there are BLEU"),
        (", max-tokens: 500", "", "train: max-tokens is missing"),
        ("names: [BLEU]", "names: [BLEU, BLEU]", "score: two scores are called BLEU"),
        ("names: [BLEU]", "options: {tokenise: none}, names: [BLEU]", "score.0.options: not a command of ode-tr"),
        ("names: [BLEU]", "options: {compound-split: true}, names: [BLEU]", "options: --compound-split divides"),
        ("metric: bleu", "metric: rouge", "score.0: names: rouge needs 3, one for each score"),
        ("metric: bleu", "metric: errant", "score.0: how many scores errant has depends on the output"),
        ("names: [BLEU], metric: bleu", "names: [P, R, F], metric: m2", "score.0: against: m2 is measured against m2"),
        (
            "names: [BLEU], metric: bleu",
            "names: [P, R, F], metric: m2, against: m2",
            "score.0: against: m2: a corpus of the kind parallel has no file of corrections",
        ),
        (
            "arch: ode_transformer_rk2_tiny\n",
            "arch: a\npreparation: words\n",
            "preparation: words: preparations has",
        ),
        ("valid: null, ", "", "preparations.pieces.corpus: say either valid: .* or hold_out: N"),
        ("preparation: pieces", "preparation: words", ".*preparation: words: preparations has pieces"),
        (
            "{a: texts/a.en, b",
            "{aa: a.en, b",
            "corpus: a: no such source .did you mean aa..; .* 'sources: {a: FILE}'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key(recipe_of, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message) as raised:
        recipe_of(GOOD.replace(old, new, 1))
    assert str(raised.value).startswith(str(tmp_path / "recipe.yaml"))


def test_a_metric_takes_one_reference_or_several(recipe_of) -> None:
    text = GOOD.replace("  text:", "  references: {first: [{source_file: a, target_file: b}]}\n  text:")
    assert recipe_of(text).corpus.further_references("first") == 1
    with pytest.raises(UserError, match="score.0: wer takes one reference, and a test set has several"):
        recipe_of(text.replace("metric: bleu", "metric: wer"))


def test_recipes_are_found_by_name_or_path(tmp_path: Path) -> None:
    assert "multi30k_en_de" in recipe_names()
    assert find_recipe("multi30k_en_de").is_file()
    own = tmp_path / "own.yaml"
    own.write_text(GOOD)
    assert find_recipe(str(own)) == own


def test_glue_has_a_script_of_its_own() -> None:
    with pytest.raises(
        UserError, match=r"glue: the grid of ode-transformer analyse glue.*recipes are bert_pretraining, cnn_dm, gec"
    ):
        find_recipe("glue")


@pytest.mark.parametrize("name", ["nothing", "none.yaml"])
def test_a_recipe_that_is_not_there(name: str) -> None:
    with pytest.raises(
        UserError, match=f"{name}: no such recipe; there are bert_pretraining, cnn_dm, gec_conll14, .*, or the path"
    ):
        find_recipe(name)


@pytest.mark.parametrize("name", recipe_names())
def test_what_cuts_the_source_in_training_cuts_it_in_decoding(name: str) -> None:
    """fairseq reads these flags from each command line, not from a checkpoint, and refuses what is too long."""
    recipe = read_recipe(find_recipe(name))
    for flag in ("truncate-source", "max-source-positions"):
        assert recipe.train.get(flag) == recipe.generate.get(flag)


@pytest.mark.parametrize("side", ["../x", "", ".hidden", "a/b"])
def test_a_language_ends_the_names_of_files(side: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD.replace("source: en", f"source: '{side}'"))
    with pytest.raises(UserError, match=r"corpus.parallel.source: String should match pattern"):
        read_recipe(path)


def test_the_results_of_a_recipe_have_a_folder_of_their_own(tmp_path: Path) -> None:
    recipe = read_recipe(find_recipe("multi30k_en_de"))
    options = RunOptions(output=tmp_path / "experiments")
    assert recipe_data(recipe, "multi30k_en_de", options).owner == "multi30k_en_de"
    assert recipe_data(recipe, str(find_recipe("multi30k_en_de")), options).owner == "multi30k_en_de"
    own = recipe_data(recipe, str(tmp_path / "mine" / "a.yaml"), options)
    assert (own.folder, own.owner) == (tmp_path / "experiments" / "a", "../../mine/a.yaml")
    for name in ("...yaml", ".yaml", "..yaml"):
        with pytest.raises(UserError, match="rename the recipe: the folder of its results"):
            recipe_data(recipe, name, options)
