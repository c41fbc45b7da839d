"""Preparation of the GLUE tasks: bad tables, missing files, and the digest that results depend on."""

import json
from pathlib import Path

import pytest
from glue_tables import sentence, write_published_mrpc, write_tables

from ode_transformer.cli import main
from ode_transformer.corpora.vocabulary import train_pieces_of_long_text
from ode_transformer.glue import sentence_data
from ode_transformer.glue.download import MRPC_FILES
from ode_transformer.glue.preparation import tables_folder
from ode_transformer.glue.tasks import TASKS, read_table
from ode_transformer.support.files import lock_directory


def pretrained_folder(tmp_path: Path) -> Path:
    """Return a folder with a dictionary and pieces."""
    folder = tmp_path / "pretraining"
    folder.mkdir()
    (tmp_path / "text").write_text("".join(f"{sentence(number)} {number}\n" for number in range(300)))
    train_pieces_of_long_text([tmp_path / "text"], 40, False, folder)
    (folder / "dict.txt").write_text("a 1\n")
    return folder


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
    arguments = ["--pretraining", str(pretraining), "--raw", str(tmp_path / "raw"), "--output", str(tmp_path / "out")]
    assert main(["analyse", "glue", "prepare", "--tasks", name, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ode-transformer analyse glue: error: ")
    assert message in line


@pytest.mark.parametrize("missing", ["dict.txt", "sentencepiece.bpe.model"])
def test_a_folder_without_dictionary_or_pieces(tmp_path: Path, capsys, missing: str) -> None:
    folder = pretrained_folder(tmp_path)
    (folder / missing).unlink()
    assert main(["analyse", "glue", "prepare", "--pretraining", str(folder), "--raw", str(tmp_path)]) == 2
    assert missing in capsys.readouterr().err


def test_a_dictionary_in_another_encoding(tmp_path: Path, capsys) -> None:
    folder = pretrained_folder(tmp_path)
    (folder / "dict.txt").write_bytes("é 1\n".encode("latin-1"))
    assert main(["analyse", "glue", "prepare", "--pretraining", str(folder), "--raw", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "dict.txt: line 1 is not UTF-8" in line


def test_the_folder_is_locked(tmp_path: Path, capsys) -> None:
    words = ["prepare", "--pretraining", str(pretrained_folder(tmp_path)), "--output", str(tmp_path / "out")]
    with lock_directory(tmp_path / "out", "preparing tasks"):
        assert main(["analyse", "glue", *words]) == 2
    assert "out: another process is preparing tasks here" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_published_files_of_mrpc_are_divided_elsewhere(tmp_path: Path) -> None:
    folder = write_published_mrpc(tmp_path / "raw" / "MRPC")
    published_files = sorted(folder.iterdir())
    for label in ("1", "0"):
        tables = tables_folder(TASKS["MRPC"], tmp_path / "raw", tmp_path / "made")
        assert tables == tmp_path / "made" / "MRPC"
        assert sorted(folder.iterdir()) == published_files
        assert read_table(TASKS["MRPC"], tables, "train")[0][1].label == label
        text = (folder / MRPC_FILES[0]).read_text()
        (folder / MRPC_FILES[0]).write_text(text.replace("1\t10\t11", "0\t10\t11"))


@pytest.mark.parametrize("name", ["train.tsv", "test.tsv"])
def test_changed_tables_change_the_digest(tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(sentence_data, "binarise", lambda *arguments: arguments[-1].mkdir(parents=True, exist_ok=True))
    folder, path = pretrained_folder(tmp_path), write_tables(tmp_path / "raw", "RTE") / name
    arguments = ["prepare", "--tasks", "RTE", "--pretraining", str(folder), "--raw", str(tmp_path / "raw")]

    def digest() -> str:
        assert main(["analyse", "glue", *arguments, "--output", str(tmp_path / "out")]) == 0
        return json.loads((tmp_path / "out" / "data-bin" / "RTE" / "examples.json").read_text())["digest"]

    first_digest = digest()
    assert digest() == first_digest
    header, _, *remaining = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(remaining))
    second_digest = digest()
    assert second_digest != first_digest
    (tmp_path / "text").write_text("".join(f"{sentence(number + 1)} {number}\n" for number in range(300)))
    train_pieces_of_long_text([tmp_path / "text"], 41, False, folder)
    assert digest() != second_digest
