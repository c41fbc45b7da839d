"""``ode-transformer new``: a recipe for a user's own files, which runs as it is written."""

import json
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from gec_stand_in import m2_text
from plain_models import ANY_NAME, PAIRS
from programs_here import start_programs_here

from ode_transformer.cli import main
from ode_transformer.support.generate_log import read_generate_log

ROOT = Path(__file__).parents[3]
SIZES = {"embed-dim": 16, "ffn-embed-dim": 16, "layers": 1, "attention-heads": 2}
SPLITS = ("train", "valid", "test")


def two_files(name: str, sides: tuple[str, str]) -> list[dict[str, list[str]]]:
    """Return the texts of each split by the names of their files."""
    texts = {side: [pair[number] for pair in PAIRS] for number, side in enumerate(sides)}
    return [{name.format(split=split, side=side): text for side, text in texts.items()} for split in SPLITS]


TEXTS = {
    "translation": two_files("my.{split}.{side}", ("en", "de")),
    "summaries": two_files("{split}.{side}.txt", ("article", "summary")),
    "corrections": [{f"{split}.m2": m2_text(shift).splitlines()} for shift, split in enumerate(SPLITS)],
}
CORRECTED = sum(line.startswith("S ") for line in TEXTS["corrections"][2]["test.m2"])
METRICS = {"summaries": "rouge", "corrections": "m2"}


def write_texts(kind: str, folder: Path) -> list[str]:
    """Write the texts of a kind; return the words that name them."""
    words = []
    for split, texts in zip(SPLITS, TEXTS[kind], strict=True):
        words.append(f"--{split}")
        for name, lines in texts.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            words.append(str(folder / name))
    return words + (["--kind", "summaries"] if kind == "summaries" else [])


def test_own_text_becomes_own_numbers(tmp_path: Path, monkeypatch, capsys) -> None:
    start_programs_here(monkeypatch)
    words = write_texts("translation", tmp_path)
    path = tmp_path / "mine.yaml"
    long = {"my.valid.de": "left out of validation", "my.test.en": "the output is empty"}
    for name in long:
        lines = (tmp_path / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / name).write_text("".join([lines[0], "The dog sleeps. " * 400 + "\n", *lines[2:]]), encoding="utf-8")
    assert main(["new", str(path.with_suffix("")), *words]) == 0
    printed, warnings = capsys.readouterr()
    probably = "4,096 characters or more in line 2, probably too long for the model"
    assert warnings.endswith("".join(f"warning: {tmp_path / name}: {probably}: {long[name]}\n" for name in long))
    assert "next: ode-transformer reproduce" in printed
    assert re.search(r"^ode_transformer_rk2_tiny: 1 \+ 3 layers, [\d,]+ parameters with at most [\d,]+", printed, re.M)
    assert re.search(
        r"^training: about \d+ minutes on this processor, as busy as it is; 2 minutes on a GPU", printed, re.M
    )
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["threads"] == 1
    assert str(tmp_path) not in text.partition("\ntitle:")[2]  # files are relative to the recipe

    small = [f"--{stack}-{size}={number}" for stack in ("encoder", "decoder") for size, number in SIZES.items()]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    own = ["--output", ANY_NAME, "--workers", "1", "--gpus", "0", "--", "--max-update", "3", *small]
    assert main(["reproduce", str(path), *own]) == 0
    printed, progress = capsys.readouterr()
    for name in long:
        text = f"{ANY_NAME}/mine/pieces/{name.removeprefix('my.')}: more than 1,023 tokens in line 2: {long[name]}\n"
        assert text in printed
    (folder,) = {path.parent for path in elsewhere.glob("*/mine/*/scores.json")}
    scores = json.loads((folder / "scores.json").read_text())
    assert list(scores) == ["BLEU", "chrF2"]
    assert all(math.isfinite(score["value"]) for score in scores.values())
    run = folder.relative_to(elsewhere)
    assert f"model: {run}/model/model.pt" in printed
    page = shlex.join(["ode-transformer", "report", str(run), "--output", f"{run}/report.html"])
    assert f"\na page about it: {page}\n" in printed
    count = f"{len(PAIRS)} sentences are too long for the model: empty outputs"
    assert f"{run}/generate.test.log: 1 of {count}" in progress
    assert read_generate_log(folder / "generate.test.log")[1].hypothesis == ""
    (tmp_path / "my.test.en").write_text("".join(f"{source}\n" for source, _ in PAIRS))
    capsys.readouterr()
    assert main(["prepare", str(path), *own[:4]]) == 0
    assert main(["train", str(path), *own[:2], *own[4:]]) == 0
    assert "\n== train: already done" in capsys.readouterr().out
    model = torch.hub.load(str(ROOT), "translation_model", str(folder / "model"), source="local", trust_repo=True)
    assert len(model.translate(["The dog sleeps."])) == 1


@pytest.mark.parametrize(("kind", "sets"), [("summaries", len(PAIRS)), ("corrections", CORRECTED)])
def test_other_kinds_of_text_are_prepared_and_scored_by_their_metrics(
    kind: str, sets: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    start_programs_here(monkeypatch)
    assert main(["new", str(tmp_path / "mine"), *write_texts(kind, tmp_path)]) == 0
    own = [str(tmp_path / "mine.yaml"), "--output", str(tmp_path / "out")]
    assert main(["prepare", *own, "--workers", "1"]) == 0
    assert json.loads((tmp_path / "out/mine/counts.json").read_text())["test"] == sets
    capsys.readouterr()
    assert main(["reproduce", *own, "--gpus", "0", "--dry-run"]) == 0
    assert f"ode-transformer score --metric {METRICS[kind]}" in capsys.readouterr().out


def test_wrong_files_are_named_and_no_recipe_is_written(tmp_path: Path, capsys) -> None:
    words = write_texts("translation", tmp_path) + ["--kind", "translation"]
    for changed, message in (
        ([*words[:2], *words[3:]], f"--train {tmp_path}/my.train.en: expected source and target"),
        ([*words, "--arch", "none"], "--arch none: no architecture for translation; ours are"),
    ):
        assert main(["new", str(tmp_path / "mine"), *changed]) == 2
        assert message in capsys.readouterr().err
    shutil.copy(tmp_path / "my.valid.de", tmp_path / "my.valid.fr")
    train, (source, target) = words[:3], words[4:6]
    order = "expected files in .en and .de, in this order, as those of --train"
    for pair in ([target, source], [source, source], [source, str(tmp_path / "my.valid.fr")]):
        assert main(["new", str(tmp_path / "mine"), *train, "--valid", *pair]) == 2
        assert f"error: --valid {shlex.join(pair)}: {order}\n" in capsys.readouterr().err
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    one_file = ["new", str(tmp_path / "table"), "--train", str(table), "--valid", str(table)]
    assert main(one_file) == 2
    assert f"error: --train {table}: a table, with a tab in each line: give each column" in capsys.readouterr().err
    assert main([*one_file, "--kind", "text"]) == 0
    (tmp_path / "my.test.de").write_text("one\n")
    capsys.readouterr()
    assert main(["new", str(tmp_path / "mine"), *words]) == 2
    assert f"sides of different length: {tmp_path}/my.test.en" in capsys.readouterr().err
    assert not (tmp_path / "mine.yaml").exists()


def test_a_preparation_replaces_nothing_but_its_own(tmp_path: Path, monkeypatch, capsys) -> None:
    """Not what the user keeps in such a folder, not a raw file in it, not the data of another recipe of this name."""
    start_programs_here(monkeypatch)
    words, output = write_texts("translation", tmp_path), tmp_path / "out"
    (tmp_path / "other").mkdir()
    paths = [tmp_path / "mine.yaml", tmp_path / "other" / "mine.yaml"]
    assert main(["new", str(paths[0]), *words]) == 0
    assert main(["new", str(paths[1]), *words[:3], "--valid", *words[1:3]]) == 0

    def prepare(path: Path) -> str:
        capsys.readouterr()
        status = main(["prepare", str(path), "--output", str(output), "--workers", "1"])
        error = capsys.readouterr().err.splitlines()[-1:]
        assert (status, bool(error)) in ((0, False), (2, True))
        return "".join(error)

    corpus = output / "mine" / "corpus"
    corpus.mkdir(parents=True)
    (corpus / "thesis.txt").write_text("years of work\n")
    assert f"{corpus}: no preparation has made it, and this one would replace it" in prepare(paths[0])
    (corpus / "thesis.txt").rename(tmp_path / "thesis.txt")
    corpus.rmdir()
    assert prepare(paths[0]) == ""
    counts = (output / "mine" / "counts.json").read_text()
    assert re.search(r"out/mine: has the data of another recipe, \S+mine\.yaml; choose", prepare(paths[1]))
    assert (output / "mine" / "counts.json").read_text() == counts

    text = paths[0].read_text(encoding="utf-8")
    paths[0].write_text(text.replace(": my.train.en", ": out/mine/corpus/train.en"), encoding="utf-8")
    assert "corpus/train.en: a raw file in a folder that the preparation replaces" in prepare(paths[0])
    paths[0].write_text(text, encoding="utf-8")
