"""Tables, downloads and submission files of the GLUE tasks."""

import zipfile
from pathlib import Path

import pytest
from file_server import serving
from glue_tables import sentence, write_tables

from ode_transformer.lab.glue import tasks
from ode_transformer.lab.glue.tasks import TASKS, find_tables, read_table
from ode_transformer.support.errors import UserError


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_read_by_its_columns(tmp_path: Path, name: str) -> None:
    task, folder = TASKS[name], write_tables(tmp_path, name)
    for split in task.tables:
        examples = read_table(task, folder, split)
        assert len(examples) == {"train": 12, "valid": 6, "test": 5}[split.rstrip("1")]
        for number, example in enumerate(examples):
            assert example.texts == (sentence(number), sentence(number + 3))[: len(task.texts)]
            if "test" in split:
                assert (example.label, example.index) == ("", str(number))
            elif task.classes:
                assert example.label in task.classes
            else:
                assert float(example.label) == number % 6


def test_broken_labelled_rows_of_qqp_are_left_out_and_counted(tmp_path: Path, capsys) -> None:
    folder = write_tables(tmp_path, "QQP")
    for split, file in TASKS["QQP"].tables.items():
        with open(folder / file, "a") as table:
            table.write("7\t1\n")
        if split == "test":
            with pytest.raises(UserError, match="test.tsv, line 7: 2 fields instead of 3"):
                read_table(TASKS["QQP"], folder, split)
        else:
            assert len(read_table(TASKS["QQP"], folder, split)) == {"train": 12, "valid": 6}[split]
            assert "1 broken rows left out" in capsys.readouterr().out


def test_an_archive_gives_its_tables_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    with zipfile.ZipFile(tmp_path / "RTE.zip", "w") as members:
        for name in ("RTE/train.tsv", "RTE/dev.tsv", "RTE/test.tsv", "RTE/original/dev.tsv", "../train.tsv"):
            members.writestr(name, name)
    with serving() as server:
        sources = tmp_path / "sources.yaml"
        sources.write_text(f"glue_rte: {{file: RTE.zip, urls: ['{server.url('RTE.zip')}'], licence: free}}\n")
        monkeypatch.setattr(tasks, "SOURCES_FILE", sources)
        server.files["RTE.zip"] = (tmp_path / "RTE.zip").read_bytes()
        for _ in range(2):
            folder = find_tables(TASKS["RTE"], None, tmp_path / "raw")
            assert {path.name for path in folder.glob("*.tsv")} == {"dev.tsv", "test.tsv", "train.tsv"}
            assert (folder / "dev.tsv").read_text() == "RTE/dev.tsv"
        assert len(server.fetched) == 1


def test_mrpc_is_divided_by_its_development_pairs(tmp_path: Path) -> None:
    """The two files as they are published, and the list of development pairs, the third and the fifth."""
    published = tmp_path / "raw" / "MRPC"
    published.mkdir(parents=True)
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = [f"{n % 2}\t{n}0\t{n}1\tone {n}\ttwo {n}\r\n" for n in range(6)]
    for split, count in (("train", 6), ("test", 2)):
        (published / f"msr_paraphrase_{split}.txt").write_text(header + "".join(rows[:count]), newline="")
    (published / "mrpc_dev_ids.tsv").write_text("20\t21\n40 \t41\n\n")
    files, task = sorted(published.iterdir()), TASKS["MRPC"]
    folder = find_tables(task, tmp_path / "raw", tmp_path / "made")
    assert sorted(published.iterdir()) == files
    assert {split: [example.texts[0] for example in read_table(task, folder, split)] for split in task.tables} == {
        "train": ["one 0", "one 1", "one 3", "one 5"],
        "valid": ["one 2", "one 4"],
        "test": ["one 0", "one 1"],
    }
    assert [example.index for example in read_table(task, folder, "test")] == ["0", "1"]
