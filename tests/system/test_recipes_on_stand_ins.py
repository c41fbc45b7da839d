"""Every recipe from its raw files to its table, as a user would run it; the raw files are written by stand-ins."""

import json
import math
import re
import shlex
from pathlib import Path

import pytest
from parallel_stand_in import OTHERS, pairs_of
from programs_here import start_programs_here
from recipes_for_tests import NAMES, Runner, counts_of

from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.support import commands
from ode_transformer.support.lines import iterate_lines

ONE_OF_EACH_KIND = ("iwslt14_de_en", "cnn_dm", "gec_conll14", "ptb")


def commands_in(output: str) -> list[list[str]]:
    """Those that were shown, without the files that their output goes to."""
    shown = [shlex.split(line.removeprefix("+ ")) for line in output.splitlines() if line.startswith("+ ")]
    return [words[: next((n for n, word in enumerate(words) if word in (">", ">>")), None)] for words in shown]


def binarised(folder: Path) -> dict[str, set[int]]:
    """Lines of each split's sides that fairseq has counted."""
    found = re.findall(r"/(\w+)(?:\.\w+)?: (\d+) sents", (folder / "preprocess.log").read_text())
    return {split: {int(lines) for name, lines in found if name == split} for split, _ in found}


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_from_raw_files_to_the_table(name: str, tmp_path: Path, monkeypatch, capsys) -> None:
    start_programs_here(monkeypatch)
    run = Runner(name, tmp_path, monkeypatch)
    recipe = run.recipe
    published = next((entry for entry in recipe.expected if entry.arch == recipe.arch), recipe.expected[0])
    words = ["--arch", published.arch, "--", *commands.flags(published.flags)]

    assert run("reproduce", "--dry-run", *words) == 0
    announced = commands_in(capsys.readouterr().out)
    assert not run.output.exists()

    assert run("reproduce", *words) == 0
    printed = capsys.readouterr().out
    assert commands_in(printed) == announced

    counts = json.loads((run.data / "counts.json").read_text())
    assert counts == counts_of(recipe)
    assert recipe.corpus.kind != "parallel" or (recipe.corpus.keep is None) == ("left out" not in counts)
    assert binarised(run.data) == {split: {lines} for split, lines in counts.items() if split != "left out"}

    (folder,) = {path.parent for path in run.data.glob("*/scores.json")}
    entries = json.loads((folder / "scores.json").read_text())
    scores = {title: entry["value"] for title, entry in entries.items()}
    titles = [recipe.score_title(t, split) for split in recipe.sets for entry in recipe.score for t in entry.names]
    assert list(scores) == titles
    assert all(math.isfinite(score) for score in scores.values())
    for title, score in scores.items():
        assert f"\n{title} {score:.2f} (" in printed
    further = getattr(recipe.corpus, "references", {})
    references = [1 + len(further.get(test, [])) for test in recipe.sets.values() for _ in recipe.score]
    if recipe.score[0].metric == "bleu":
        for number, entry in zip(references, entries.values(), strict=True):
            assert f"nrefs:{number}|" in entry["signature"]

    (table,) = (path.read_text() for path in run.data.glob("*.md"))
    assert printed.endswith(f"\n{table}")
    same = [e for e in recipe.expected if (e.arch, e.flags, e.variant) == (published.arch, published.flags, None)]
    rows = [(published.arch, scores), *((f"{entry.table}: {entry.system}", entry.scores) for entry in same)]
    assert table.splitlines()[2:] == [
        f"| {title} | {' | '.join(f'{found[t]:.2f}' if t in found else '' for t in titles)} |" for title, found in rows
    ]
    assert table.splitlines()[0] == f"| {recipe.title} | {' | '.join(titles)} |"


@pytest.mark.parametrize("name", [n for n in NAMES if getattr(read_recipe(find_recipe(n)).corpus, "references", None)])
def test_references_are_those_of_the_raw_files(name: str, tmp_path: Path, monkeypatch) -> None:
    start_programs_here(monkeypatch)
    run = Runner(name, tmp_path, monkeypatch)
    corpus = run.recipe.corpus
    assert corpus.build(run.files, tmp_path / "corpus", workers=1)
    for number, (test, parts) in enumerate(corpus.test.items()):
        split = f"test{number or ''}"
        for version in range(len(corpus.references.get(test, [])) + 1):
            written = [target for part in parts for _, target in pairs_of(corpus, part, OTHERS, version)]
            assert list(iterate_lines(tmp_path / "corpus" / f"raw{version or ''}.{split}.{corpus.target}")) == written
    for path in (tmp_path / "corpus").iterdir():
        assert not re.search("<|&lt;|http|&amp; ?amp", path.read_text(encoding="utf-8")), path
