"""GLUE's tables, grid and submission files; the whole way of three tasks from a model trained for a moment."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from glue_tables import sentence, write_published_mrpc, write_tables

from ode_transformer.cli import main
from ode_transformer.glue import finetuning, grid_search, preparation, pretraining_text, sentence_data
from ode_transformer.glue.download import MRPC_FILES
from ode_transformer.glue.glue_command import CONFIG
from ode_transformer.glue.grid import GlueConfig
from ode_transformer.glue.preparation import tables_folder
from ode_transformer.glue.tasks import TASKS, read_table, submission_text
from ode_transformer.support import commands
from ode_transformer.support.checkpoint_file import save_checkpoint
from ode_transformer.support.errors import UserError


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_read_by_its_columns(tmp_path: Path, name: str) -> None:
    task, folder = TASKS[name], write_tables(tmp_path, name)
    for split in task.tables:
        examples, broken = read_table(task, folder, split)
        assert broken == 0
        assert len(examples) == {"train": 12, "valid": 6, "test": 5}[split.rstrip("1")]
        for number, example in enumerate(examples):
            assert example.texts == (sentence(number), sentence(number + 3))[: len(task.texts)]
            if "test" in split:
                assert (example.label, example.index) == ("", str(number))
            elif task.classes:
                assert example.label in task.classes
            else:
                assert float(example.label) == number % 6


def test_only_mnli_has_two_sections() -> None:
    assert {name for name, task in TASKS.items() if "test1" in task.tables} == {"MNLI"}
    assert [TASKS["MNLI"].submission(split) for split in ("test", "test1")] == ["MNLI-m", "MNLI-mm"]
    assert TASKS["STS-B"].outputs == 1
    assert TASKS["MNLI"].outputs == 3


BAD = {
    "no column": (
        "RTE",
        "train.tsv",
        lambda text: text.replace("sentence2", "other"),
        "train.tsv: no column 'sentence2'",
    ),
    "no label column": ("SST-2", "dev.tsv", lambda text: text.replace("label", "class"), "dev.tsv: no column 'label'"),
    "no index": ("QNLI", "test.tsv", lambda text: text.replace("index", "i"), "test.tsv: no column 'index'"),
    "a field too few": (
        "STS-B",
        "train.tsv",
        lambda text: text.replace("\t1.000\n", "\n"),
        "train.tsv, line 3: 9 fields instead of 10",
    ),
    "a column too few in CoLA": (
        "CoLA",
        "train.tsv",
        lambda text: text.replace("gj04\t", ""),
        "train.tsv, line 1: 3 fields instead of 4",
    ),
    "unknown label": (
        "RTE",
        "dev.tsv",
        lambda text: text.replace("\tnot_entailment", "\tno"),
        "dev.tsv, line 3: label 'no' is none of entailment, not_entailment",
    ),
    "no number": ("STS-B", "dev.tsv", lambda text: text.replace("2.000", "two"), "line 4: label 'two' is not a number"),
    "out of range": ("STS-B", "dev.tsv", lambda text: text.replace("2.000", "7"), "line 4: label '7' is not a number"),
    "not a number": ("STS-B", "dev.tsv", lambda text: text.replace("2.000", "nan"), "line 4: label 'nan' is not"),
    "header alone": ("MRPC", "test.tsv", lambda text: text.splitlines()[0], "test.tsv: no examples"),
    "empty": ("QNLI", "train.tsv", lambda text: "", "train.tsv: no column 'question'"),
}


@pytest.mark.parametrize(("name", "file", "spoil", "message"), BAD.values(), ids=BAD)
def test_a_bad_table_is_one_line(tmp_path: Path, capsys, name: str, file: str, spoil, message: str) -> None:
    path = write_tables(tmp_path / "raw", name) / file
    path.write_text(spoil(path.read_text()))
    pretraining = pretrained_folder(tmp_path)
    words = ["--pretraining", str(pretraining), "--raw", str(tmp_path / "raw"), "--output", str(tmp_path / "out")]
    assert main(["glue", "prepare", "--tasks", name, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ode-transformer glue: error: ")
    assert message in line


def pretrained_folder(tmp_path: Path) -> Path:
    """A folder with a dictionary and pieces."""
    folder = tmp_path / "pretraining"
    folder.mkdir()
    (tmp_path / "text").write_text("".join(f"{sentence(number)} {number}\n" for number in range(300)))
    pretraining_text.learn_pieces(tmp_path / "text", 40, False, folder)
    (folder / "dict.txt").write_text("a 1\n")
    return folder


def test_a_missing_table(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, "MNLI")
    (folder / "dev_mismatched.tsv").unlink()
    with pytest.raises(UserError, match="dev_mismatched.tsv: missing; MNLI has train.tsv"):
        read_table(TASKS["MNLI"], folder, "valid1")


def test_broken_labelled_rows_of_qqp_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, "QQP")
    for split, file in TASKS["QQP"].tables.items():
        with open(folder / file, "a") as table:
            table.write("7\t1\n")
        if split == "test":
            with pytest.raises(UserError, match="test.tsv, line 7: 2 fields instead of 3"):
                read_table(TASKS["QQP"], folder, split)
        else:
            examples, broken = read_table(TASKS["QQP"], folder, split)
            assert (len(examples), broken) == ({"train": 12, "valid": 6}[split], 1)


def test_submission_files() -> None:
    assert submission_text(TASKS["RTE"], [("0", "entailment"), ("1", "not_entailment")]) == (
        "index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    )
    clipped = submission_text(TASKS["STS-B"], [("0", "-0.4"), ("1", "2.34567"), ("2", "5.2")])
    assert clipped.splitlines() == ["index\tprediction", "0\t0.000", "1\t2.346", "2\t5.000"]


def test_a_submission_without_numbers_is_refused() -> None:
    with pytest.raises(UserError, match="STS-B, test example 1: the best run predicts nan"):
        submission_text(TASKS["STS-B"], [("0", "1.000000"), ("1", "nan")])


def test_warm_up_is_a_tenth_of_the_updates() -> None:
    chosen = {"batch-size": 16, "max-epoch": 3}
    options = finetuning.training_options(Path("d"), 1001, 2, False, Path("s"), chosen)
    assert (options["total-num-update"], options["warmup-updates"]) == (189, 19)
    assert options["distributed-world-size"] == 1  # fairseq's own default multiplies the batch by the GPUs there are


def test_unknown_task(capsys) -> None:
    assert main(["glue", "finetune", "--tasks", "WNLI", "--model", "m.pt"]) == 2
    assert "--tasks WNLI: unknown; known are CoLA" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["dict.txt", "sentencepiece.bpe.model"])
def test_a_folder_without_what_encodes(tmp_path: Path, capsys, missing: str) -> None:
    folder = pretrained_folder(tmp_path)
    (folder / missing).unlink()
    assert main(["glue", "prepare", "--pretraining", str(folder), "--raw", str(tmp_path)]) == 2
    assert missing in capsys.readouterr().err


def test_a_dictionary_in_another_encoding(tmp_path: Path, capsys) -> None:
    folder = pretrained_folder(tmp_path)
    (folder / "dict.txt").write_bytes("é 1\n".encode("latin-1"))
    assert main(["glue", "prepare", "--pretraining", str(folder), "--raw", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "dict.txt: line 1 is not UTF-8" in line


def test_published_files_of_mrpc_are_divided_elsewhere(tmp_path: Path) -> None:
    folder = write_published_mrpc(tmp_path / "raw" / "MRPC")
    before = sorted(folder.iterdir())
    for label in ("1", "0"):
        tables = tables_folder(TASKS["MRPC"], tmp_path / "raw", tmp_path / "made")
        assert tables == tmp_path / "made" / "MRPC"
        assert sorted(folder.iterdir()) == before
        assert read_table(TASKS["MRPC"], tables, "train")[0][1].label == label
        text = (folder / MRPC_FILES[0]).read_text()
        (folder / MRPC_FILES[0]).write_text(text.replace("1\t10\t11", "0\t10\t11"))


class Killed(Exception):
    """In place of a training that is stopped from outside."""


class Pretended:
    """Trains and predicts nothing: each run scores what ``right`` says, of four development examples.

    :param monkeypatch: puts it in place of fairseq
    """

    def __init__(self, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.right, self.killed, self.trained = {1: 2, 2: 4, 3: 1}, 0, []
        self.output, self.model = output, output / "model.pt"
        data = output / "data-bin" / "RTE"
        data.mkdir(parents=True)
        self.model.touch()
        self.prepared("first")
        monkeypatch.setattr(finetuning, "model_options", lambda _: {"arch": "ode_bert_tiny"})
        monkeypatch.setattr(preparation, "check_dictionary", lambda *_: None)
        monkeypatch.setattr(finetuning, "predict", self.predict)
        monkeypatch.setattr(commands, "run", self.train)

    def prepared(self, digest: str) -> None:
        examples = {"train": 8, "labels": {"valid": ["entailment"] * 4}, "indices": {"test": ["0"]}, "digest": digest}
        (self.output / "data-bin" / "RTE" / "examples.json").write_text(json.dumps(examples))

    def train(self, command: list, log: Path, progress: None, append: bool) -> None:
        self.trained.append((log.parent.name, append))
        (log.parent / "checkpoints").mkdir(exist_ok=True)
        checkpoint = {"optimizer_history": [{"num_updates": 1}], "model": {}}
        save_checkpoint(checkpoint, log.parent / "checkpoints" / "checkpoint_last.pt")
        if f"seed={self.killed}" in log.parent.name:
            raise Killed

    def predict(self, checkpoint: Path, data: Path, splits: list[str]) -> dict[str, list[str]]:
        right = self.right[int(checkpoint.parents[1].name.rpartition("=")[2])]
        return {"valid": ["entailment"] * right + ["not_entailment"] * (4 - right), "test": ["entailment"]}

    def finetune(self) -> list[int]:
        """The seeds whose runs were trained."""
        grid = {"batch-size": [4], "lr": [0.001], "max-epoch": [1], "seed": list(self.right)}
        self.trained.clear()
        grid_search.fine_tune(["RTE"], self.model, self.output, GlueConfig(grid=grid, train={}), [], False)
        return [int(name.rpartition("=")[2]) for name, _ in self.trained]

    @property
    def kept(self) -> list[int]:
        """The seeds whose checkpoints are there."""
        folders = (self.output / "runs" / "RTE").glob("*/checkpoints")
        return sorted(int(folder.parent.name.rpartition("=")[2]) for folder in folders)


def test_the_best_checkpoints_survive_a_repeat(tmp_path: Path, monkeypatch) -> None:
    runs = Pretended(tmp_path, monkeypatch)
    assert runs.finetune() == [1, 2, 3]
    assert runs.kept == [2]
    assert runs.finetune() == []
    assert runs.kept == [2]


@pytest.mark.parametrize(("killed", "kept", "after"), [(2, [1, 2], [2, 3]), (3, [2, 3], [3])])
def test_a_half_trained_run_keeps_its_checkpoints(tmp_path: Path, monkeypatch, killed, kept, after) -> None:
    runs = Pretended(tmp_path, monkeypatch)
    runs.killed = killed
    for _ in range(2):
        with pytest.raises(Killed):
            runs.finetune()
        assert runs.kept == kept
    assert runs.trained[0][1]  # goes on from its checkpoint
    runs.killed = 0
    assert runs.finetune() == after
    assert runs.kept == [2]


def test_other_data_or_another_model_give_other_results(tmp_path: Path, monkeypatch) -> None:
    runs = Pretended(tmp_path, monkeypatch)
    runs.finetune()
    runs.prepared("second")
    assert runs.finetune() == [1, 2, 3]
    assert not any(append for _, append in runs.trained)
    runs.model.write_text("another")
    assert runs.finetune() == [1, 2, 3]


@pytest.mark.parametrize("name", ["train.tsv", "test.tsv"])
def test_changed_tables_change_the_digest(tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(sentence_data, "binarise", lambda *words: words[-1].mkdir(parents=True, exist_ok=True))
    folder, path = pretrained_folder(tmp_path), write_tables(tmp_path / "raw", "RTE") / name
    words = ["prepare", "--tasks", "RTE", "--pretraining", str(folder), "--raw", str(tmp_path / "raw")]

    def digest() -> str:
        assert main(["glue", *words, "--output", str(tmp_path / "out")]) == 0
        return json.loads((tmp_path / "out" / "data-bin" / "RTE" / "examples.json").read_text())["digest"]

    before = digest()
    assert digest() == before
    header, first, *others = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(others))
    assert digest() != before
    before = digest()
    (tmp_path / "text").write_text("".join(f"{sentence(number + 1)} {number}\n" for number in range(300)))
    pretraining_text.learn_pieces(tmp_path / "text", 41, False, folder)
    assert digest() != before


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text prepared and an RK2 Macaron pre-trained for a moment: data-bin/ and model/checkpoint_last.pt."""
    folder = tmp_path_factory.mktemp("pretrained")
    lines = [f"{sentence(number)} {sentence(2 * number)} {number}" for number in range(300)]
    (folder / "plain.txt").write_text("\n".join(lines) + "\n")
    words = [str(folder / "plain.txt"), "--output", str(folder), "--pieces", "40", "--valid-share", "0.1"]
    assert main(["pretraining-text", *words]) == 0
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
    commands.run(["fairseq-train", folder / "data-bin", *commands.flags(options)], folder / "train.log")
    return folder


def diverged(checkpoint: Path, output: Path) -> Path:
    """The same model with a head that says nan."""
    state = torch.load(checkpoint, weights_only=True)
    for name, value in state["model"].items():
        if name.endswith("out_proj.bias") and "classification_heads" in name:
            value.fill_(float("nan"))
    torch.save(state, output)
    return output


@pytest.mark.slow
def test_the_whole_way_of_three_tasks(pretrained: Path, tmp_path: Path, capfd) -> None:
    names = ["CoLA", "STS-B", "MNLI"]  # one text; a number; two sections
    for name in names:
        write_tables(tmp_path / "raw", name)
    tasks = ["--tasks", ",".join(names), "--output", str(tmp_path / "glue")]
    raw = ["--pretraining", str(pretrained / "data-bin"), "--raw", str(tmp_path / "raw")]
    assert main(["glue", "prepare", *raw, *tasks]) == 0
    config = yaml.safe_load(CONFIG.read_text())
    config["grid"] = {"batch-size": [4], "lr": [0.001, 0.0001], "max-epoch": [1], "seed": [1]}
    (tmp_path / "glue.yaml").write_text(yaml.safe_dump(config))
    model = pretrained / "model" / "checkpoint_last.pt"
    words = ["finetune", "--model", str(model), "--config", str(tmp_path / "glue.yaml"), *tasks]
    capfd.readouterr()

    assert main(["glue", *words, "--dry-run"]) == 0
    planned = [line for line in capfd.readouterr().out.splitlines() if line.startswith("+ ")]
    assert len(planned) == 6
    assert all("--distributed-world-size 1 " in line for line in planned)
    assert all("--encoder-ode-scheme rk2" in line and "--encoder-layers 2" in line for line in planned)
    assert not (tmp_path / "glue" / "runs").exists()

    assert main(["glue", *words]) == 0
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
    kept = list((tmp_path / "glue" / "runs" / "CoLA").glob("*/checkpoints"))
    assert len(kept) == 1  # the better run's

    broken = diverged(kept[0] / "checkpoint_last.pt", tmp_path / "broken.pt")
    assert finetuning.predict(broken, tmp_path / "glue" / "data-bin" / "CoLA", ["test"]) == {"test": ["nan"] * 5}

    capfd.readouterr()
    assert main(["glue", *words]) == 0
    again = capfd.readouterr().out
    assert "+ fairseq-train" not in again
    assert again.count("already done") == 6
    assert list((tmp_path / "glue" / "runs" / "CoLA").glob("*/checkpoints")) == kept


@pytest.mark.slow
def test_predictions_are_in_the_order_of_the_examples(pretrained: Path, tmp_path: Path) -> None:
    """One by one as all at once: fairseq sorts and shuffles, and batches by length."""
    from ode_transformer.glue.sentence_data import LabelledText, binarise

    data = pretrained / "data-bin"
    encode = pretraining_text.load_encoder(data / "sentencepiece.bpe.model")
    texts = [" ".join([sentence(number)] * (1 + number % 4)) for number in range(9)]
    splits = {"train": [LabelledText((text,), f"{number}.5") for number, text in enumerate(texts)]}
    splits |= {"valid": splits["train"], "test": splits["train"][::-1]}
    binarise(splits, (), encode, data / "dict.txt", tmp_path / "text", tmp_path / "data")
    model = pretrained / "model" / "checkpoint_last.pt"
    chosen = finetuning.model_options(model) | {"batch-size": 3, "max-epoch": 3, "lr": 0.01, "optimizer": "adam"}
    chosen |= {"finetune-from-model": model}
    options = finetuning.training_options(tmp_path / "data", 9, 1, True, tmp_path / "run", chosen)
    commands.run(["fairseq-train", tmp_path / "data", *commands.flags(options)], tmp_path / "log")
    said = finetuning.predict(tmp_path / "run" / "checkpoint_last.pt", tmp_path / "data", ["valid", "test"], batch=2)
    assert len(set(said["valid"])) > 4
    ours, reverse = ([float(value) for value in said[split]] for split in ("valid", "test"))
    assert ours == pytest.approx(reverse[::-1], abs=1e-5)
    broken = diverged(tmp_path / "run" / "checkpoint_last.pt", tmp_path / "broken.pt")
    assert finetuning.predict(broken, tmp_path / "data", ["test"]) == {"test": ["nan"] * 9}


@pytest.mark.slow
def test_what_cannot_be_fine_tuned(pretrained: Path, tmp_path: Path, capsys) -> None:
    model = pretrained / "model" / "checkpoint_last.pt"
    words = ["finetune", "--tasks", "RTE", "--output", str(tmp_path)]
    assert main(["glue", *words, "--model", str(model)]) == 2
    assert "not prepared; first: bash scripts/glue.sh prepare --tasks RTE" in capsys.readouterr().err
    state = torch.load(model, weights_only=True)  # with the one class that our models allow
    state["cfg"]["model"].arch = "macaron_tiny"
    torch.save(state, tmp_path / "macaron.pt")
    assert main(["glue", *words, "--model", str(tmp_path / "macaron.pt")]) == 2
    assert "--arch macaron_tiny; what can be fine-tuned is macaron_bert_base" in capsys.readouterr().err
    (tmp_path / "data-bin" / "RTE" / "input0").mkdir(parents=True)
    (tmp_path / "data-bin" / "RTE" / "examples.json").write_text(json.dumps({"train": 4}))
    (tmp_path / "data-bin" / "RTE" / "input0" / "dict.txt").write_text("a 1\nb 1\n")
    assert main(["glue", *words, "--model", str(model)]) == 2
    assert "embeddings; with <mask>," in capsys.readouterr().err
    assert main(["glue", *words, "--model", str(tmp_path / "none.pt")]) == 2
    assert "none.pt" in capsys.readouterr().err


@pytest.mark.slow
def test_a_translation_model_does_not_read_one_text(pretrained: Path, tmp_path: Path) -> None:
    options = {"user-dir": finetuning.PACKAGE, "task": "masked_lm", "arch": "macaron_tiny", "optimizer": "adam"}
    options |= {"cpu": True, "save-dir": tmp_path / "run", "tokens-per-sample": 40, "max-tokens": 400}
    with pytest.raises(UserError, match="ValueError: --task masked_lm does not go with --arch macaron_tiny, which has"):
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
