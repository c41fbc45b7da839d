"""``reproduce glue``: pre-training, preparation and fine-tuning by one command."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from forked_commands import run_quickly
from glue_tables import sentence, write_tables

from ode_transformer.cli import main
from ode_transformer.cli.command import COMMANDS
from ode_transformer.glue import benchmark
from ode_transformer.glue.glue_command import CONFIG
from ode_transformer.glue.grid import read_config
from ode_transformer.glue.tasks import TASKS
from ode_transformer.models import fairseq_parser
from ode_transformer.recipes.options import RunOptions
from ode_transformer.recipes.recipe_files import find_recipe

TINY = {"encoder-layers": 1, "encoder-embed-dim": 16, "encoder-ffn-embed-dim": 16, "encoder-attention-heads": 2}


def test_the_command_composes(tmp_path: Path, capsys) -> None:
    words = [
        "reproduce",
        "glue",
        "--arch",
        "ode_bert_base",
        "--dry-run",
        "--gpus",
        "4",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(words) == 0
    shown = [shlex.split(line.removeprefix("+ ")) for line in capsys.readouterr().out.splitlines() if line[:2] == "+ "]
    assert not (tmp_path / "out").exists()
    train = shown[1][: shown[1].index(">")]
    args = fairseq_parser.parse(train[0], train[1:])
    assert (args.arch, args.task, args.criterion) == ("ode_bert_base", "masked_lm", "masked_lm")
    assert args.max_tokens * args.update_freq[0] * args.distributed_world_size == 128_000
    assert [words[:4] for words in shown[3:]] == [
        ["ode-transformer", "analyse", "glue", stage] for stage in ("prepare", "finetune")
    ]
    assert all(words[1] in COMMANDS for words in shown[2:])
    trained = args.save_dir.removesuffix("/checkpoints")
    assert shown[3][shown[3].index("--pretraining") + 1] == f"{trained}/model"
    assert shown[4][shown[4].index("--model") + 1] == f"{trained}/checkpoints/checkpoint_last.pt"


def test_a_table_is_every_system_of_it(monkeypatch, capsys) -> None:
    archs = []
    monkeypatch.setattr(benchmark, "reproduce", lambda config, path, options: archs.append(options.arch))
    assert main(["reproduce", "glue", "--table", "Lu et al. 2019, Table 2"]) == 0
    assert archs == ["ode_bert_base", "macaron_bert_base"]
    assert main(["reproduce", "glue", "--table", "Table 9"]) == 2
    assert "not among the published results of glue: Lu et al. 2019, Table 2" in capsys.readouterr().err


@pytest.mark.slow
def test_from_raw_files_to_the_table(tmp_path: Path, monkeypatch, capsys) -> None:
    run_quickly(monkeypatch)
    recipe = yaml.safe_load(find_recipe("bert_pretraining").read_text(encoding="utf-8"))
    recipe["vocabulary"]["size"], recipe["corpus"]["valid_fraction"], recipe["tokens_per_update"] = 40, 0.1, 1000
    recipe["train"] |= TINY | {"max-update": 4, "total-num-update": 4, "max-tokens": 1000, "tokens-per-sample": 40}
    recipe["average"]["every"] = 2
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    names = ["CoLA", "MRPC", "STS-B"]
    raw = tmp_path / "raw"
    for name in names:
        write_tables(raw, name)
    (raw / "bert").mkdir()
    for file, step in (("wikipedia", 1), ("books", 2)):
        lines = [f"{sentence(number * step)} {number}\n" + "\n" * (number % 3 == 0) for number in range(150)]
        (raw / "bert" / f"{file}.txt").write_text("".join(lines))
    grid = {"batch-size": [4], "lr": [0.001], "max-epoch": [1], "seed": [1]}
    config = read_config(CONFIG).model_copy(update={"grid": grid, "pretraining": str(tmp_path / "small.yaml")})
    monkeypatch.setattr(benchmark, "TASKS", {name: TASKS[name] for name in names})
    options = RunOptions(output=tmp_path / "out", raw=raw, gpus=0)
    benchmark.reproduce(config, CONFIG, options)
    printed = capsys.readouterr().out
    assert printed.count("--task symmetric_sentence_prediction ") == 2
    table = (tmp_path / "out" / "glue" / "macaron_bert_base" / "results.md").read_text()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert head[-1] == "Lu et al. 2019, Table 2: Macaron Net base, test set"
    assert [(row[0], row[-1]) for row in rows] == [("CoLA", "57.6"), ("MRPC", "88.4, 84.4"), ("STS-B", "87.5, 86.3")]
    benchmark.reproduce(config, CONFIG, replace(options, raw=raw))
    assert "+ fairseq-train" not in capsys.readouterr().out
