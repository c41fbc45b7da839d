"""Download of GLUE's published files, and the tables of each task made from them.

No table is ever half-written.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from ode_transformer.corpora.download import obtain_files
from ode_transformer.corpora.sources import SOURCES_FILE, read_sources
from ode_transformer.glue.tasks import GlueTask
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_files
from ode_transformer.support.lines import read_lines

MRPC_DEV = "mrpc_dev_ids.tsv"
MRPC_FILES = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", MRPC_DEV)


def download(task: GlueTask, folder: Path) -> None:
    """Download the files of a task and write its tables into a folder, the training table last.

    :raises UserError: names the file that cannot be downloaded or has the wrong contents
    """
    sources = read_sources(SOURCES_FILE)
    for path in obtain_files(task.sources, sources, None, folder).values():
        if path.suffix == ".zip":
            unpack(task, path)
    if task.name == "MRPC":
        divide_mrpc(folder, folder)


def unpack(task: GlueTask, archive: Path) -> None:
    """Extract the tables of a task from an archive, and nothing else, into the archive's folder.

    :raises UserError: the archive lacks a table
    """
    folder = archive.parent
    with zipfile.ZipFile(archive) as zip_file:
        names = [name for name in zip_file.namelist() if name.rpartition("/")[0] in ("", task.name)]
        members_by_table = {name.rpartition("/")[2]: name for name in names}
        if absent := [table for table in task.tables.values() if table not in members_by_table]:
            raise UserError(f"{archive}: no {absent[0]} in it; --raw takes a folder with the tasks' folders")
        for table in reversed(task.tables.values()):  # the training table last
            partial = folder / f".{table}.partial"
            with zip_file.open(members_by_table[table]) as member, open(partial, "wb") as file:
                shutil.copyfileobj(member, file)
            os.replace(partial, folder / table)


def divide_mrpc(published: Path, output: Path) -> None:
    """Write the three tables of MRPC, made from the published two and the list of development pairs.

    :param published: folder with ``MRPC_FILES``
    :raises UserError: a file is missing, or a listed pair is not in the training table
    """
    train, test, development = (_table_lines(published / name) for name in MRPC_FILES)
    development_pairs = {tuple(_fields(line)) for line in development if line.strip()}
    header, *rows = train
    pairs = [tuple(_fields(row)[1:3]) for row in rows]
    if absent := sorted(development_pairs - set(pairs)):
        raise UserError(f"{published / MRPC_DEV}: pair {' '.join(absent[0])} is not in {MRPC_FILES[0]}")
    tables = {
        "dev.tsv": [header, *(row for row, pair in zip(rows, pairs, strict=True) if pair in development_pairs)],
        "train.tsv": [header, *(row for row, pair in zip(rows, pairs, strict=True) if pair not in development_pairs)],
    }
    # The published test table has labels; the benchmark numbers its rows instead.
    header, *rows = test
    numbered = [f"{number}\t{row.partition(chr(9))[2]}" for number, row in enumerate(rows)]
    tables["test.tsv"] = [f"index\t{header.partition(chr(9))[2]}", *numbered]
    write_files(output, {name: "".join(f"{line}\n" for line in lines) for name, lines in tables.items()}, "train.tsv")


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split("\t")]


def _table_lines(path: Path) -> list[str]:
    """Read the lines of a published file, without a byte-order mark."""
    if not path.is_file():
        raise UserError(f"{path}: missing; MRPC is made from it")
    lines = read_lines(path)
    if not lines:
        raise UserError(f"{path}: empty")
    return [lines[0].removeprefix("\ufeff"), *lines[1:]]
