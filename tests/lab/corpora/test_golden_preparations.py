"""Every recipe of parallel text makes of lines with traps what the published scripts make of them.

golden_preparations/README.md says where the expected tokens come from.
"""

from functools import cache
from itertools import chain, islice, zip_longest
from pathlib import Path

import parallel_stand_in
import pytest
import yaml

from ode_transformer.lab.corpora.cleaning import Keep, TextPreparation
from ode_transformer.lab.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.lab.recipes.options import find_recipe, recipe_names
from ode_transformer.lab.recipes.recipe import read_recipe

GOLDEN = Path(__file__).parent / "golden_preparations"
STEPS = ("normalise", "printable", "tokenise", "split_dashes", "lowercase")
Pair = tuple[str, str]


@cache
def golden_lines(language: str) -> list[dict]:
    return yaml.safe_load((GOLDEN / f"{language}.yaml").read_text(encoding="utf-8"))


def steps_of(text: TextPreparation, language: str) -> list[str]:
    """Return the names of the steps, the treatment of Romanian letters after the punctuation."""
    steps = [step for step in STEPS if getattr(text, step)]
    if language == "ro" and text.romanian:
        steps.insert(steps.index("tokenise"), text.romanian)
    return steps


def expected_tokens(raw: str, text: TextPreparation, language: str) -> str:
    """Return what is published of a line, or our own tokens where a difference is named."""
    line = next((line for line in golden_lines(language) if line["raw"] == raw), None)
    steps = steps_of(text, language)
    if line is None or not steps:
        return " ".join(raw.split())
    names = [" ".join(steps), " ".join(step for step in steps if step != "lowercase")]
    tables = (line.get("ours", {}), line)
    tokens = next((table[name] for name in names for table in tables if name in table), line["all"])
    if text.split_last_full_stop and "last word" in line:
        tokens = " ".join([*tokens.split()[:-1], line["last word"]])
    return tokens.lower() if text.lowercase else tokens


def trap_pairs(corpus: ParallelCorpus) -> list[Pair]:
    """Return the lines of both languages side by side; the shorter list is repeated."""
    sides = [[line["raw"] for line in golden_lines(language)] for language in corpus.languages]
    count = max(map(len, sides))
    source, target = ((side * count)[:count] for side in sides)
    return [*zip(source, target, strict=True), ("", target[0])]


def length_pairs(keep: Keep | None) -> tuple[list[Pair], list[Pair]]:
    """Return pairs at the limits of a filter, which it keeps, and pairs beyond them, which it leaves out."""
    if keep is None or keep.unit == "pieces":
        return [], []

    def pair(source: int, target: int) -> Pair:
        return " ".join(["a"] * source), " ".join(["b"] * target)

    kept, left_out = [pair(keep.max, keep.max)], [pair(keep.max + 1, keep.max + 1), ("x " + "y" * 1001, "x y")]
    if keep.ratio:
        longest = int(4 * keep.ratio)
        kept, left_out = [*kept, pair(4, longest)], [*left_out, pair(4, longest + 1)]
    return kept, left_out


def titles(texts: list[str]) -> str:
    """Return IWSLT's training text of titles alone, without the words that descriptions begin with."""
    return "".join(f"<url>http://talks.example</url>\n<title>{text}</title>\n" for text in texts)


PREPARATIONS = [
    pytest.param(name, preparation, marks=[pytest.mark.slow] if recipe.corpus.source == "zh" else [])
    for name in recipe_names()
    for recipe in [read_recipe(find_recipe(name))]
    if recipe.corpus.kind == "parallel"
    for preparation in (None, *recipe.preparations)
]


@pytest.mark.parametrize(("name", "preparation"), PREPARATIONS)
def test_traps(name: str, preparation: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_recipe(find_recipe(name)).prepared_as(preparation)
    corpus = recipe.corpus.model_copy(update={"truecase": False})  # test_parallel_corpus.py has its cases
    traps, (kept, left_out) = trap_pairs(corpus), length_pairs(corpus.keep)
    fillers = [("filler", "filler")] * max(2, corpus.hold_out or 0)  # so many that a pair is held out
    held_out = (*corpus.valid, *chain.from_iterable([*corpus.test.values(), *corpus.references.values()]))
    contents = [(corpus.train[0], traps + kept + left_out + fillers)]
    contents += [(location, fillers) for location in corpus.train[1:]] + [(location, traps) for location in held_out]
    monkeypatch.setattr(parallel_stand_in, "contents", lambda corpus: iter(contents))
    monkeypatch.setattr(parallel_stand_in, "tagged", titles)
    files = parallel_stand_in.write_raw(recipe, tmp_path / "raw")
    corpus.build(files, tmp_path / "corpus", 1)

    def written(split: str) -> list[Pair]:
        paths = [tmp_path / "corpus" / f"{split}.{language}" for language in corpus.languages]
        texts = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths if path.exists()]
        return list(zip_longest(*texts))

    def prepared(pairs: list[Pair], text: TextPreparation, straight: bool = False) -> list[Pair]:
        sides = [[side.replace("’", "'") if straight else side for side in pair] for pair in pairs]
        return [tuple(map(expected_tokens, pair, (text, text), corpus.languages)) for pair in sides]

    training = prepared(traps, corpus.text)
    if corpus.keep and corpus.keep.unit == "words":
        lengths = [sorted(len(side.split()) for side in pair) for pair in training]
        ratio = corpus.keep.ratio or corpus.keep.max
        training = [pair for pair, (less, more) in zip(training, lengths, strict=True) if 0 < more <= ratio * less]
    training += kept + fillers * len(corpus.train)
    if every := corpus.hold_out:
        valid = list(islice(training, every - 1, None, every))
        training = [pair for number, pair in enumerate(training, start=1) if number % every]
        assert written("valid") == valid
    assert written("train") == training
    for number, locations in enumerate(corpus.test.values()):
        text = corpus.test_text or corpus.text
        expected = [prepared(traps, text, location.straight_apostrophes) for location in locations]
        assert written(f"test{number or ''}") == list(chain.from_iterable(expected))
