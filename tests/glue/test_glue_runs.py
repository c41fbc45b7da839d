"""GLUE from a briefly pre-trained model: fine-tuning, predictions, submission files."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from forked_commands import run_quickly
from glue_tables import sentence, write_tables

from ode_transformer.cli import main
from ode_transformer.glue import finetuning
from ode_transformer.glue.glue_command import CONFIG
from ode_transformer.glue.sentence_data import LabelledText, binarise
from ode_transformer.glue.tasks import TASKS
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_encoder import SubwordEncoder


def test_warm_up_is_a_tenth_of_the_updates() -> None:
    chosen = {"batch-size": 16, "max-epoch": 3}
    options = finetuning.training_options(1001, 2, False, Path("s"), chosen)
    assert (options["total-num-update"], options["warmup-updates"]) == (189, 19)
    assert options["distributed-world-size"] == 1  # fairseq's own default multiplies the batch by the GPUs there are


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An RK2 Macaron after a few updates of pre-training: data-bin/ and model/checkpoint_last.pt."""
    folder = tmp_path_factory.mktemp("pretrained")
    lines = [f"{sentence(number)} {sentence(2 * number)} {number}" for number in range(300)]
    (folder / "plain.txt").write_text("\n".join(lines) + "\n")
    arguments = [str(folder / "plain.txt"), "--output", str(folder), "--pieces", "40", "--valid-fraction", "0.1"]
    with pytest.MonkeyPatch.context() as patch:
        run_quickly(patch)
        assert main(["pretraining-text", *arguments]) == 0
    options = {
        "user-dir": finetuning.PACKAGE,
        "task": "masked_lm",
        "criterion": "masked_lm",
        "arch": "macaron_bert_tiny",
        "encoder-ode-scheme": "rk2",
        "ode-coefficients": "gate",
        "encoder-layers": 2,
        "encoder-embed-dim": 32,
        "encoder-ffn-embed-dim": 48,
        "sample-break-mode": "complete",
        "tokens-per-sample": 40,
        "skip-invalid-size-inputs-valid-test": True,
        "optimizer": "adam",
        "lr": 0.003,
        "max-tokens": 1000,
        "max-update": 12,
        "cpu": True,
        "num-workers": 0,
        "data-buffer-size": 0,
        "save-dir": folder / "model",
    }
    with pytest.MonkeyPatch.context() as patch:
        run_quickly(patch)
        commands.run(["fairseq-train", folder / "data-bin", *commands.flags(options)], folder / "train.log")
    return folder


def diverged(checkpoint: Path, output: Path) -> Path:
    """Save the same model with a head that predicts nan."""
    state = torch.load(checkpoint, weights_only=True)
    for name, value in state["model"].items():
        if name.endswith("out_proj.bias") and "classification_heads" in name:
            value.fill_(float("nan"))
    torch.save(state, output)
    return output


@pytest.mark.slow
def test_three_tasks_from_tables_to_submission_files(pretrained: Path, tmp_path: Path, capfd, monkeypatch) -> None:
    run_quickly(monkeypatch)
    names = ["CoLA", "STS-B", "MNLI"]  # one text; a number; two sections
    for name in names:
        write_tables(tmp_path / "raw", name)
    tasks = ["--tasks", ",".join(names), "--output", str(tmp_path / "glue")]
    raw = ["--pretraining", str(pretrained / "data-bin"), "--raw", str(tmp_path / "raw")]
    assert main(["analyse", "glue", "prepare", *raw, *tasks]) == 0
    config = yaml.safe_load(CONFIG.read_text())
    config["grid"] = {"batch-size": [4], "lr": [0.001, 0.0001], "max-epoch": [1], "seed": [1]}
    (tmp_path / "glue.yaml").write_text(yaml.safe_dump(config))
    model = pretrained / "model" / "checkpoint_last.pt"
    arguments = ["finetune", "--model", str(model), "--config", str(tmp_path / "glue.yaml"), *tasks]
    capfd.readouterr()

    assert main(["analyse", "glue", *arguments, "--dry-run"]) == 0
    planned = [line for line in capfd.readouterr().out.splitlines() if line.startswith("+ ")]
    assert len(planned) == 6
    assert all("--distributed-world-size 1 " in line for line in planned)
    assert all("--encoder-ode-scheme rk2" in line and "--encoder-layers 2" in line for line in planned)
    assert not (tmp_path / "glue" / "runs").exists()

    assert main(["analyse", "glue", *arguments]) == 0
    assert "matthews" in (tmp_path / "glue" / "results.md").read_text()
    submitted = tmp_path / "glue" / "submission"
    assert sorted(path.name for path in submitted.iterdir()) == ["CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "STS-B.tsv"]
    for file, allowed in (
        ("CoLA.tsv", TASKS["CoLA"].classes),
        ("MNLI-mm.tsv", TASKS["MNLI"].classes),
        ("STS-B.tsv", ()),
    ):
        head, *rows = (line.split("\t") for line in (submitted / file).read_text().splitlines())
        assert head == ["index", "prediction"]
        assert [index for index, _ in rows] == list("01234")
        assert all(value in allowed if allowed else 0 <= float(value) <= 5 for _, value in rows)
    remaining = list((tmp_path / "glue" / "runs" / "CoLA").glob("*/checkpoints"))
    assert len(remaining) == 1  # those of the better run

    broken = diverged(remaining[0] / "checkpoint_last.pt", tmp_path / "broken.pt")
    assert finetuning.predict(broken, tmp_path / "glue" / "data-bin" / "CoLA", ["test"]) == {"test": ["nan"] * 5}

    capfd.readouterr()
    assert main(["analyse", "glue", *arguments]) == 0
    again = capfd.readouterr().out
    assert "+ fairseq-train" not in again
    assert again.count("already done") == 6
    assert list((tmp_path / "glue" / "runs" / "CoLA").glob("*/checkpoints")) == remaining


@pytest.mark.slow
def test_predictions_are_in_the_order_of_the_examples(pretrained: Path, tmp_path: Path, monkeypatch) -> None:
    """fairseq sorts and shuffles examples, and batches them by length."""
    run_quickly(monkeypatch)
    data = pretrained / "data-bin"
    encode = SubwordEncoder("sentencepiece", data / "sentencepiece.bpe.model").encode
    texts = [" ".join([sentence(number)] * (1 + number % 4)) for number in range(9)]
    splits = {"train": [LabelledText((text,), f"{number}.5") for number, text in enumerate(texts)]}
    splits |= {"valid": splits["train"], "test": splits["train"][::-1]}
    binarise(splits, (), encode, data / "dict.txt", tmp_path / "text", tmp_path / "data")
    model = pretrained / "model" / "checkpoint_last.pt"
    chosen = finetuning.model_options(model) | {"batch-size": 3, "max-epoch": 3, "lr": 0.01, "optimizer": "adam"}
    chosen |= {"finetune-from-model": model}
    options = finetuning.training_options(9, 1, True, tmp_path / "run", chosen)
    commands.run(["fairseq-train", tmp_path / "data", *commands.flags(options)], tmp_path / "log")
    monkeypatch.setattr(finetuning, "PREDICTED_TOGETHER", 2)
    predictions = finetuning.predict(tmp_path / "run" / "checkpoint_last.pt", tmp_path / "data", ["valid", "test"])
    assert len(set(predictions["valid"])) > 4
    ours, reverse = ([float(value) for value in predictions[split]] for split in ("valid", "test"))
    assert ours == pytest.approx(reverse[::-1], abs=1e-5)
    broken = diverged(tmp_path / "run" / "checkpoint_last.pt", tmp_path / "broken.pt")
    assert finetuning.predict(broken, tmp_path / "data", ["test"]) == {"test": ["nan"] * 9}


@pytest.mark.slow
def test_models_that_cannot_be_fine_tuned_are_refused(pretrained: Path, tmp_path: Path, capsys) -> None:
    model = pretrained / "model" / "checkpoint_last.pt"
    arguments = ["finetune", "--tasks", "RTE", "--output", str(tmp_path)]
    assert main(["analyse", "glue", *arguments, "--model", str(model)]) == 2
    assert "not prepared; first: ode-transformer analyse glue prepare --tasks RTE" in capsys.readouterr().err
    state = torch.load(model, weights_only=True)  # with the one class that our models allow
    state["cfg"]["model"].arch = "macaron_tiny"
    torch.save(state, tmp_path / "macaron.pt")
    assert main(["analyse", "glue", *arguments, "--model", str(tmp_path / "macaron.pt")]) == 2
    assert "--arch macaron_tiny; what can be fine-tuned is macaron_bert_base" in capsys.readouterr().err
    (tmp_path / "data-bin" / "RTE" / "input0").mkdir(parents=True)
    (tmp_path / "data-bin" / "RTE" / "examples.json").write_text(json.dumps({"train": 4}))
    (tmp_path / "data-bin" / "RTE" / "input0" / "dict.txt").write_text("a 1\nb 1\n")
    assert main(["analyse", "glue", *arguments, "--model", str(model)]) == 2
    assert "embeddings; with <mask>," in capsys.readouterr().err
    assert main(["analyse", "glue", *arguments, "--model", str(tmp_path / "none.pt")]) == 2
    assert "none.pt" in capsys.readouterr().err


@pytest.mark.slow
def test_a_translation_model_cannot_be_pre_trained_on_text(pretrained: Path, tmp_path: Path, monkeypatch) -> None:
    run_quickly(monkeypatch)
    options = {"user-dir": finetuning.PACKAGE, "task": "masked_lm", "arch": "macaron_tiny", "optimizer": "adam"}
    options |= {"cpu": True, "save-dir": tmp_path / "run", "tokens-per-sample": 40, "max-tokens": 400}
    with pytest.raises(
        UserError, match="error: --task masked_lm does not go with --arch macaron_tiny, which has an encoder"
    ):
        commands.run(["fairseq-train", pretrained / "data-bin", *commands.flags(options)], tmp_path / "log")


@pytest.mark.slow
def test_roberta_s_interface_in_python(pretrained: Path) -> None:
    from ode_transformer.models import ODEBertModel

    data = pretrained / "data-bin"
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(data / "sentencepiece.bpe.model")}
    folder = str(pretrained / "model")
    model = ODEBertModel.from_pretrained(folder, "checkpoint_last.pt", str(data), **pieces).eval()
    filled = model.fill_mask("the old <mask> 7", topk=2)
    assert len(filled) == 2
    tokens = model.encode("the old house", "a new river", no_separator=True)
    assert tokens.eq(2).sum() == 2
    assert model.extract_features(tokens).shape == (1, len(tokens), 32)
