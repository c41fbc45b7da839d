"""GLUE from a briefly pre-trained model: metrics, fine-tuning, predictions, submission files."""

import contextlib
import io
from pathlib import Path

import pytest
import torch
import yaml
from glue_tables import sentence, write_tables
from programs_here import start_programs_here

from ode_transformer.cli import main
from ode_transformer.lab.glue import finetuning
from ode_transformer.lab.glue.finetuning import PreparedTask, evaluate
from ode_transformer.lab.glue.tasks import CONFIG, TASKS, Example
from ode_transformer.support import commands
from ode_transformer.support.subword_models import SubwordEncoder

EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = "--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 48 --max-update 12"
RK2 = "--encoder-ode-scheme rk2 --ode-coefficients gate"

# true positives 3, false positives 1, false negatives 1, true negatives 3
PREDICTIONS, LABELS = list("11110000"), list("11100001")


def test_metrics_of_classes() -> None:
    measured = evaluate(["accuracy", "f1", "matthews"], PREDICTIONS, LABELS)
    assert measured == pytest.approx({"accuracy": 75.0, "f1": 75.0, "matthews": 100 * (9 - 1) / 16})
    flipped = [["01"[value == "0"] for value in values] for values in (LABELS[:5], PREDICTIONS[:5])]
    assert evaluate(["f1"], *flipped[::-1]) == pytest.approx({"f1": 200 / 3})  # 1 of 1 predicted, 1 of 2 right
    assert evaluate(["matthews"], ["1", "1"], ["1", "0"]) == {"matthews": 0}


def test_metrics_of_numbers() -> None:
    predictions, labels = ["1.0", "2.0", "3.0", "10.0"], ["1.0", "2.0", "4.0", "3.0"]
    # ranks 1 2 3 4 and 1 2 4 3: 1 − 6·2/(4·15); sums over the four: 4.5 + 1 − 1.5 + 3 of products, 50 and 5 of squares
    expected = {"spearman": 80.0, "pearson": 100 * 7 / 250**0.5}
    assert evaluate(["spearman", "pearson"], predictions, labels) == pytest.approx(expected)
    assert evaluate(["pearson", "spearman"], ["2", "2"], ["1", "3"]) == {"pearson": 0, "spearman": 0}
    assert evaluate(["pearson", "accuracy"], ["2", "nan"], ["1", "3"]) == {"pearson": -100, "accuracy": 0}


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Run examples/bert_demo.py with its commands in this process; return its folder and what it printed."""
    folder, printed = tmp_path_factory.mktemp("demonstration"), io.StringIO()
    lines = [f"{sentence(number)} {sentence(3 * number + number // 7)} {number}." for number in range(300)]
    (folder / "text").write_text("\n".join(lines) + "\n")

    def run(*words: object) -> None:
        # Without processes that clean the text, which would import everything.
        words = (*words[:2], "--workers", 1, *words[2:]) if words[0] == "reproduce" else words
        assert main(list(map(str, words))) == 0

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        start_programs_here(patch)
        patch.syspath_prepend(str(EXAMPLES))
        import bert_demo

        patch.setattr(bert_demo, "run", run)
        patch.setattr(bert_demo, "OUTPUT", folder / "bert_demo")
        bert_demo.main(folder / "text", f"{TINY} {RK2}".split())
    return folder / "bert_demo", printed.getvalue().splitlines()


@pytest.fixture(scope="module")
def pretrained(demonstration: tuple[Path, list[str]]) -> Path:
    """The model of the demonstration, model.pt, with dict.txt and its pieces beside it."""
    (model,) = demonstration[0].glob("pre-trained/*/*/model/model.pt")
    return model


@pytest.mark.slow
def test_the_demonstration(demonstration: tuple[Path, list[str]]) -> None:
    _, printed = demonstration
    trained = [line for line in printed if line.startswith("+ fairseq-train")]
    assert len(trained) == 4
    assert all(RK2 in line for line in trained)
    assert [line.split(" accuracy ")[0] for line in printed[-2:]] == ["pre-trained  ", "from scratch "]


def diverged(checkpoint: Path, output: Path) -> Path:
    """Save the same model with a head that predicts nan."""
    state = torch.load(checkpoint, weights_only=True)
    for name, value in state["model"].items():
        if name.endswith("out_proj.bias") and "classification_heads" in name:
            value.fill_(float("nan"))
    torch.save(state, output)
    return output


@pytest.mark.slow
def test_two_tasks_from_tables_to_submission_files(pretrained: Path, tmp_path: Path, capfd, monkeypatch) -> None:
    start_programs_here(monkeypatch)
    names = ["STS-B", "MNLI"]  # a number; two sections; the demonstration has one text
    for name in names:
        write_tables(tmp_path / "raw", name)
    config = yaml.safe_load(CONFIG.read_text())
    config["grid"] = {"batch-size": [4], "lr": [0.001, 0.0001], "max-epoch": [1], "seed": [1]}
    (tmp_path / "glue.yaml").write_text(yaml.safe_dump(config))
    output, runs = tmp_path / "glue", tmp_path / "glue" / "runs"
    arguments = ["--tasks", ",".join(names), "--path", pretrained, "--config", tmp_path / "glue.yaml"]
    words = ["analyse", "glue", *map(str, [*arguments, "--raw", tmp_path / "raw", "--output", output])]
    capfd.readouterr()

    assert main([*words, "--dry-run"]) == 0
    planned = [line for line in capfd.readouterr().out.splitlines() if line.startswith("+ ")]
    assert len(planned) == 4
    assert all("--distributed-world-size 1 " in line for line in planned)
    assert all("--encoder-ode-scheme rk2" in line and "--encoder-layers 2" in line for line in planned)
    assert not output.exists()

    assert main(words) == 0
    assert "pearson" in (output / "results.md").read_text()
    submitted = output / "submission"
    assert sorted(path.name for path in submitted.iterdir()) == ["MNLI-m.tsv", "MNLI-mm.tsv", "STS-B.tsv"]
    for file, allowed in (("MNLI-mm.tsv", TASKS["MNLI"].classes), ("STS-B.tsv", ())):
        head, *rows = (line.split("\t") for line in (submitted / file).read_text().splitlines())
        assert head == ["index", "prediction"]
        assert [index for index, _ in rows] == list("01234")
        assert all(value in allowed if allowed else 0 <= float(value) <= 5 for _, value in rows)
    remaining = list((runs / "MNLI").glob("*/checkpoints"))
    assert len(remaining) == 1  # those of the better run
    broken = diverged(remaining[0] / "checkpoint_last.pt", tmp_path / "broken.pt")
    assert finetuning.predict(broken, output / "data-bin" / "MNLI", ["test"]) == {"test": ["nan"] * 5}

    capfd.readouterr()
    assert main(words) == 0
    again = capfd.readouterr().out
    assert "+ fairseq-" not in again
    assert again.count("already done") == 4 + 2
    assert list((runs / "MNLI").glob("*/checkpoints")) == remaining
    table = tmp_path / "raw" / "MNLI" / "test_matched.tsv"  # other data: its runs are trained again
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    assert main([*words, "--tasks", "MNLI"]) == 0
    assert capfd.readouterr().out.count("+ fairseq-train") == 2


@pytest.mark.slow
def test_predictions_are_in_the_order_of_the_examples(pretrained: Path, tmp_path: Path, monkeypatch) -> None:
    """fairseq sorts and shuffles examples, and batches them by length."""
    start_programs_here(monkeypatch)
    encode = SubwordEncoder("sentencepiece", pretrained.parent / "sentencepiece.bpe.model").encode
    texts = [" ".join([sentence(number)] * (1 + number % 4)) for number in range(9)]
    examples = [Example((text, text), f"{number}.5", "0") for number, text in enumerate(texts)]
    tables = {"train": examples, "valid": examples, "test": examples[::-1]}
    prepared = PreparedTask(TASKS["STS-B"], tmp_path / "data", tables, "")
    finetuning.binarise(prepared, encode, pretrained.parent / "dict.txt", tmp_path / "text")
    chosen = finetuning.model_options(pretrained) | {"batch-size": 3, "max-epoch": 3, "lr": 0.01, "optimizer": "adam"}
    options = finetuning.training_options(prepared, tmp_path / "run", chosen | {"finetune-from-model": pretrained})
    commands.run(["fairseq-train", tmp_path / "data", *commands.flags(options)], tmp_path / "log")
    monkeypatch.setattr(finetuning, "PREDICTED_TOGETHER", 2)
    predictions = finetuning.predict(tmp_path / "run" / "checkpoint_last.pt", tmp_path / "data", ["valid", "test"])
    assert len(set(predictions["valid"])) > 4
    ours, reverse = ([float(value) for value in predictions[split]] for split in ("valid", "test"))
    assert ours == pytest.approx(reverse[::-1], abs=1e-5)


@pytest.mark.slow
def test_roberta_s_interface_in_python(pretrained: Path) -> None:
    from ode_transformer.models import ODEBertModel

    folder = pretrained.parent
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(folder / "sentencepiece.bpe.model")}
    model = ODEBertModel.from_pretrained(str(folder), "model.pt", str(folder), **pieces).eval()
    filled = model.fill_mask("the old <mask> 7", topk=2)
    assert len(filled) == 2
    tokens = model.encode("the old house", "a new river", no_separator=True)
    assert tokens.eq(2).sum() == 2
    assert model.extract_features(tokens).shape == (1, len(tokens), 32)
