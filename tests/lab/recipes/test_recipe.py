"""What a recipe's file may say, and how its parts apply to an architecture."""

from pathlib import Path

import pytest

from ode_transformer.lab.recipes.options import RunOptions, find_recipe, recipe_names
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.lab.recipes.workflow import recipe_data
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
size: {encoder-layers: 3, encoder-layer-history: none, ode-coefficients: tableau}
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


def test_an_architecture_takes_what_matches_it_the_later_over_the_earlier_and_a_variant_last(recipe_of) -> None:
    recipe = recipe_of(GOOD)
    for (arch, variant), (tokens, lr, dropout) in {
        ("ode_transformer_rk4", None): (1000, 0.1, 0.1),
        ("macaron", None): (2000, 0.2, 0.1),
        ("macaron_wmt_en_de_big", None): (2000, 0.2, 0.3),
        ("macaron_wmt_en_de_big", "released"): (2000, 0.4, 0.3),
    }.items():
        made = recipe.for_arch(arch, variant)
        assert (made.arch, made.tokens_per_update, bool(made.average.best)) == (arch, tokens, variant is not None)
        assert {"lr": lr, "dropout": dropout, "max-tokens": 500}.items() <= made.train.items()


def test_the_size_is_that_of_every_architecture_as_far_as_it_has_the_flags(recipe_of) -> None:
    recipe = recipe_of(GOOD)
    flags = {"encoder-layers": 3, "encoder-layer-history": "none", "ode-coefficients": "tableau"}
    for arch, count in ((None, 3), (recipe.arch, 3), ("macaron", 2), ("transformer_tiny", 1)):
        made = recipe.for_arch(arch).train  # coefficients are an architecture's own
        assert {name: made[name] for name in flags if name in made} == dict(list(flags.items())[:count])
    assert "encoder-layers" not in recipe.for_arch("macaron", "released").train  # a variant has its own


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


def test_a_recipes_own_source_never_has_the_file_of_an_official_one(recipe_of) -> None:
    own = "sources: {czeng10_0: {file: czeng10/a.tar, urls: ['http://a.b/c'], licence: none}, a: texts/a.en"
    recipe = recipe_of(GOOD.replace("sources: {a: texts/a.en", own))
    assert recipe.source_list()["czeng10_0"].file == "recipes/recipe/czeng10/a.tar"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Captions", "titel: Captions", "titel: Extra inputs are not permitted"),
        ("lr: 0.1,", "lr: [1],", "train.lr"),
        ("last: 5", "last: 5, best: true", "average: say either last: N or best: true"),
        ("metric: bleu", "metric: blue", "score.0: blue: metrics, with their numbers of names, are .*'bleu': 1"),
        ("a: texts/a.en", "a: {file: .b.verified, urls: ['http://a.b/c'], licence: none}", "sources.a"),
        ("kind: words", "kind: letters", "vocabulary: .*'words', 'subword_nmt', 'sentencepiece'"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(recipe_of, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message) as raised:
        recipe_of(GOOD.replace(old, new, 1))
    assert str(raised.value).startswith(str(tmp_path / "recipe.yaml"))


@pytest.mark.parametrize("name", recipe_names())
def test_what_cuts_the_source_in_training_cuts_it_in_decoding(name: str) -> None:
    """fairseq reads these flags from each command line, not from a checkpoint, and refuses what is too long."""
    recipe = read_recipe(find_recipe(name))
    for flag in ("truncate-source", "max-source-positions"):
        assert recipe.train.get(flag) == recipe.generate.get(flag)
