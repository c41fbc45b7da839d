"""Tables, labels and submission files of the GLUE tasks."""

from pathlib import Path

import pytest
from glue_tables import sentence, write_tables

from ode_transformer.glue.tasks import TASKS, read_table, submission_text
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
