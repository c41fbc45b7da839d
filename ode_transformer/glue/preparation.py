"""Preparation of the GLUE tasks: tables → pieces of the pre-trained model → binary data for fairseq."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.glue import sentence_data
from ode_transformer.glue.download import MRPC_FILES, divide_mrpc, download
from ode_transformer.glue.sentence_data import LabelledText
from ode_transformer.glue.tasks import TASKS, GlueTask, read_table
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import file_stamp, lock_directory, write_files
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.json_file import read_json
from ode_transformer.support.lines import read_lines
from ode_transformer.support.subword_encoder import SubwordEncoder
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE


@dataclass(frozen=True)
class PreparedTask:
    """A task with its binary data.

    :param data: folder for fairseq
    :param train_size: number of training examples
    :param labels: labels of each development split
    :param indices: numbers of the examples of each test split, as the server wants them
    :param digest: digest of everything that the data were made from
    """

    task: GlueTask
    data: Path
    train_size: int
    labels: dict[str, list[str]]
    indices: dict[str, list[str]]
    digest: str


def prepare(names: Sequence[str], pretraining: Path, raw: Path | None, output: Path) -> None:
    """Write the binary data of each task, and ``examples.json`` beside them; a finished task is skipped.

    :param pretraining: folder with the dictionary and the pieces of the pre-trained model
    :param raw: folder with a folder of tables for each task; None downloads them
    :raises UserError: a file is missing or its contents are not the task's
    :raises OSError: the model of the pieces cannot be opened
    """
    if not (pretraining / "dict.txt").is_file():
        raise UserError(f"--pretraining {pretraining}: no dict.txt there")
    # A broken file is found before a folder is made.
    read_lines(pretraining / "dict.txt")
    SubwordEncoder("sentencepiece", pretraining / SENTENCEPIECE_FILE)
    with lock_directory(output, "preparing tasks"):
        for name in names:
            prepare_task(TASKS[name], tables_folder(TASKS[name], raw, output / "raw"), pretraining, output)


def prepare_task(task: GlueTask, folder: Path, pretraining: Path, output: Path) -> None:
    """Write the binary data of a task, and ``examples.json`` beside them, unless it is finished.

    :param folder: with its tables
    :param pretraining: see :func:`prepare`
    """
    dictionary, pieces = pretraining / "dict.txt", pretraining / SENTENCEPIECE_FILE
    encoding = [read_lines(dictionary), hashlib.sha256(pieces.read_bytes()).hexdigest()]
    tables = {split: read_table(task, folder, split) for split in task.tables}
    for split, (rows, broken_rows) in tables.items():
        skipped = f", {broken_rows} broken rows left out" if broken_rows else ""
        print(f"{task.name} {split}: {len(rows):,} examples{skipped}")
    jobs, request = Jobs(output / "text"), [task, tables, encoding]
    examples = {
        "train": len(tables["train"][0]),
        "labels": {split: [row.label for row in rows] for split, (rows, _) in tables.items() if "valid" in split},
        "indices": {split: [row.index for row in rows] for split, (rows, _) in tables.items() if "test" in split},
        "digest": jobs.digest_of(request),
    }
    splits = {split: [LabelledText(row.texts, row.label) for row in rows] for split, (rows, _) in tables.items()}
    data = output / "data-bin" / task.name

    def binarise() -> None:
        text = output / "text" / task.name
        encode = SubwordEncoder("sentencepiece", pieces).encode
        sentence_data.binarise(splits, task.classes, encode, dictionary, text, data)
        write_files(data, {"examples.json": json.dumps(examples)}, "examples.json")

    jobs.run(f"binarise {task.name}", request, data / "examples.json", binarise)


def prepared_folder(name: str, output: Path) -> Path:
    """Return the folder of a task's binary data.

    :raises UserError: the task is not prepared
    """
    data = output / "data-bin" / name
    if not (data / "examples.json").exists():
        raise UserError(f"{data}: not prepared; first: ode-transformer analyse glue prepare --tasks {name}")
    return data


def load_prepared_task(name: str, output: Path) -> PreparedTask:
    """Read what :func:`prepare` has left for a task.

    :raises UserError: the task is not prepared
    """
    data = prepared_folder(name, output)
    examples = read_json(data / "examples.json", dict)
    return PreparedTask(
        TASKS[name], data, examples["train"], examples["labels"], examples["indices"], examples["digest"]
    )


def tables_folder(task: GlueTask, raw: Path | None, output: Path) -> Path:
    """Return the folder with a task's tables; without ``raw``, or where MRPC has to be divided, one in ``output``.

    :raises UserError: a table cannot be downloaded, or a published file of MRPC is broken
    """
    job_name, last_table = f"tables of {task.name}", output / task.name / task.tables["train"]
    if raw is None:
        Jobs(output).run(job_name, task.sources, last_table, lambda: download(task, output / task.name))
        return output / task.name
    folder = raw / task.name
    if task.name != "MRPC" or (folder / "train.tsv").exists() or not (folder / MRPC_FILES[0]).exists():
        return folder
    files = [[str(path), *file_stamp(path)] for path in sorted(folder.iterdir())]
    Jobs(output).run(job_name, files, last_table, lambda: divide_mrpc(folder, output / task.name))
    return output / task.name
