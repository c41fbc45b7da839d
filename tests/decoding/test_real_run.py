"""The tools on what fairseq's own commands write: train, average, decode, score, draw the curves."""

import csv
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ode_transformer
from ode_transformer.cli.command import main
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.generate_log import read_generate_log

pytestmark = pytest.mark.slow


def fairseq(command: str, *arguments: object) -> str:
    """Run a fairseq command with our checkpoint loading and return what it prints."""
    program = f"import ode_transformer.support.checkpoint_file; from fairseq_cli.{command} import cli_main; cli_main()"
    environment = os.environ | {
        "PYTHONPATH": str(Path(ode_transformer.__file__).parent.parent),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs of a tiny Transformer on sentences of random words."""
    directory = tmp_path_factory.mktemp("run")
    numbers = random.Random(1)
    for split, size in (("train", 96), ("valid", 10)):
        lines = [" ".join(numbers.choices("abcdefgh", k=numbers.randint(3, 8))) for _ in range(size)]
        for language in ("xx", "yy"):
            (directory / f"{split}.{language}").write_text("".join(line + "\n" for line in lines))
    fairseq(
        "preprocess",
        *("-s", "xx", "-t", "yy", "--joined-dictionary", "--destdir", directory / "data"),
        *(
            "--trainpref",
            directory / "train",
            "--validpref",
            directory / "valid",
            "--testpref",
            directory / "valid",
        ),
    )
    fairseq(
        "train",
        *(directory / "data", "--arch", "transformer_tiny", "--share-all-embeddings", "--cpu"),
        *("--optimizer", "adam", "--lr", 1e-3, "--max-tokens", 300, "--max-epoch", 3),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1),
        *("--save-dir", directory / "run", "--keep-best-checkpoints", 2, "--save-interval-updates", 2),
        *("--log-format", "json", "--log-interval", 2, "--log-file", directory / "train.log"),
    )
    return directory


def average(directory: Path, *options: str) -> Path:
    output = directory / "average.pt"
    assert main(["average", str(directory / "run"), *options, "--output", str(output)]) == 0
    return output


def test_average_is_the_mean_and_fairseq_loads_it(directory: Path):
    from fairseq.checkpoint_utils import load_model_ensemble

    path = average(directory, "--last", "2")
    (model,), _ = load_model_ensemble([str(path)])
    two = [load_checkpoint(directory / "run" / f"checkpoint{epoch}.pt")["model"] for epoch in (2, 3)]
    weights = {name: value for name, value in model.state_dict().items() if name in two[0]}
    assert weights.keys() == two[0].keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, (two[0][name] + two[1][name]) / 2)
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight
    assert path.stat().st_size < 0.5 * (directory / "run" / "checkpoint3.pt").stat().st_size  # no Adam in it


def test_average_of_the_best_and_by_update(directory: Path, capsys: pytest.CaptureFixture[str]):
    average(directory, "--best", "2")
    # The loss fell in every epoch, so the second of the two best is the better one.
    chosen = capsys.readouterr().out.partition("checkpoints: ")[2].split(", ")
    losses = [float(name.split("_")[2][:5]) for name in chosen]
    assert losses == sorted(losses, reverse=True)
    average(directory, "--last", "1", "--by", "update", "--until", "2")
    assert "checkpoint_1_2.pt" in capsys.readouterr().out


def test_decode_with_the_average_and_score(directory: Path, capsys: pytest.CaptureFixture[str]):
    log = directory / "generate.log"
    path = average(directory, "--last", "2")
    data = directory / "data"
    log.write_text(fairseq("generate", data, "--path", path, "--cpu", "--beam", 2, "--required-batch-size-multiple", 1))
    sources = (directory / "valid.xx").read_text().splitlines()
    assert [translation.source for translation in read_generate_log(log)] == sources
    capsys.readouterr()
    files = ["--generate-log", str(log), "--references", str(directory / "valid.yy")]
    assert main(["score", "--metric", "bleu", "per", "wer", "--tokenize", "none", *files]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["BLEU", "PER", "WER"]


def test_curves(directory: Path):
    table = directory / "curves.csv"
    assert main(["curves", str(directory / "train.log"), "--csv", str(table)]) == 0
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    by_split = {split: [row for row in rows if row["split"] == split] for split in ("train", "valid")}
    updates = {split: [int(row["updates"]) for row in rows] for split, rows in by_split.items()}
    assert all(numbers == sorted(set(numbers)) for numbers in updates.values())
    assert len({row["epoch"] for row in by_split["valid"]}) == 3
    minutes = [float(row["minutes"]) for row in by_split["train"]]
    assert minutes == sorted(minutes)
    assert float(by_split["train"][-1]["loss"]) < float(by_split["train"][0]["loss"])
