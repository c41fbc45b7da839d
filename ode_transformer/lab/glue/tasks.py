"""The eight tasks of the GLUE benchmark on which Macaron Net (Lu et al. 2019, B.3) is evaluated: tables and grid.

A task is a folder of tab-separated tables without quoting, as the benchmark publishes them. WNLI is left out, as in
the paper.
"""

import shutil
import zipfile
from argparse import ArgumentTypeError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ode_transformer.lab.corpora.download import SOURCES_FILE, obtain_files, read_sources
from ode_transformer.lab.recipes.recipe import Flags, FlagValue
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.files import atomic_write, write_files
from ode_transformer.support.lines import read_lines
from ode_transformer.support.yaml_file import CONFIGS, YamlSection

CONFIG = CONFIGS / "glue.yaml"


class PublishedGlue(YamlSection):
    """Published scores of a system on the test sets.

    :param arch: the architecture that stands for the system
    :param scores: metrics of each submitted file, in the order of the task's
    """

    table: str
    system: str
    arch: str
    scores: dict[str, list[float]]


class GlueConfig(YamlSection):
    """Grid and common flags.

    :param symmetric: tasks whose pairs have no order: in training their texts change places by chance
    :param grid: flags of fairseq-train, each with the values to try; batch-size, lr and max-epoch at least
    """

    pretraining: str = "bert_pretraining"
    arch: str = "macaron_bert_base"
    symmetric: list[str] = []
    grid: dict[str, Annotated[list[FlagValue], Field(min_length=1)]]
    train: Flags
    expected: list[PublishedGlue] = []

    def systems_of(self, table: str) -> list[str]:
        """Return the architectures of a published table."""
        if archs := [entry.arch for entry in self.expected if entry.table == table]:
            return archs
        tables = "; ".join(dict.fromkeys(entry.table for entry in self.expected))
        raise UserError(f"--table {table}: not among the published results of glue: {tables or 'it has none'}")


@dataclass(frozen=True)
class GlueTask:
    """A task and the columns of its tables.

    :param texts: columns of the one or two texts
    :param classes: possible labels; empty where the label is a number
    :param metrics: see ``finetuning.evaluate``; their mean ranks the runs
    :param parts: of MRPC, which is published in several; see ``sources``
    :param tables: file of each split; fairseq calls a second development set valid1
    :param submissions: name of the submitted file for each test split, where it is not the task's
    :param index: column that numbers the test examples
    :param columns: columns of the training and development tables, where these have no header
    :param broken_rows: leave out labelled rows with a wrong number of fields, which the published tables contain
    """

    name: str
    texts: tuple[str, ...]
    label: str = "label"
    classes: tuple[str, ...] = ("0", "1")
    metrics: tuple[str, ...] = ("accuracy",)
    parts: tuple[str, ...] = ()
    tables: dict[str, str] = field(
        default_factory=lambda: {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
    )
    submissions: dict[str, str] = field(default_factory=dict)
    index: str = "index"
    columns: tuple[str, ...] = ()
    broken_rows: bool = False

    @property
    def sources(self) -> list[str]:
        """Entries of ``configs/sources.yaml`` to download."""
        name = f"glue_{self.name.lower().replace('-', '')}"
        return [f"{name}_{number}" for number in self.parts] or [name]


_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_PAIR_METRICS = ("f1", "accuracy")

TASKS = {
    task.name: task
    for task in (
        GlueTask("CoLA", ("sentence",), metrics=("matthews",), columns=("source", "label", "mark", "sentence")),
        GlueTask("SST-2", ("sentence",)),
        GlueTask(
            "MRPC", ("#1 String", "#2 String"), "Quality", metrics=_PAIR_METRICS, parts=("train", "test", "dev_ids")
        ),
        GlueTask("STS-B", _PAIR, label="score", classes=(), metrics=("pearson", "spearman")),
        GlueTask(
            "QQP", ("question1", "question2"), "is_duplicate", metrics=_PAIR_METRICS, index="id", broken_rows=True
        ),
        GlueTask(
            "MNLI",
            _PAIR,
            label="gold_label",
            classes=("contradiction", "neutral", "entailment"),
            tables={
                "train": "train.tsv",
                "valid": "dev_matched.tsv",
                "valid1": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test1": "test_mismatched.tsv",
            },
            submissions={"test": "MNLI-m", "test1": "MNLI-mm"},
        ),
        GlueTask("QNLI", ("question", "sentence"), classes=_ENTAILMENT),
        GlueTask("RTE", _PAIR, classes=_ENTAILMENT),
    )
}


def task_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in TASKS]:
        raise ArgumentTypeError(f"{one_line(unknown[0])} is none of {', '.join(TASKS)}")
    return names


MRPC_FILES = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv")


@dataclass(frozen=True)
class Example:
    """One row of a table: one or two texts, the label (empty in a test table), the number."""

    texts: tuple[str, ...]
    label: str
    index: str


def read_table(task: GlueTask, folder: Path, split: str) -> list[Example]:
    path, testing = folder / task.tables[split], split.startswith("test")
    lines = read_lines(path)
    has_header = testing or not task.columns
    columns = lines[0].removeprefix("\ufeff").split("\t") if has_header else list(task.columns)
    needed = (*task.texts, task.index) if testing else (*task.texts, task.label)
    if absent := [name for name in needed if name not in columns]:
        raise UserError(f"{path}: no column {absent[0]!r}; there are {', '.join(map(repr, columns))}")
    positions = [columns.index(name) for name in needed]
    examples, broken_rows = [], 0
    for number, line in enumerate(lines[has_header:], start=1 + has_header):
        fields = line.split("\t")
        if len(fields) != len(columns):
            if task.broken_rows and not testing:
                broken_rows += 1
                continue
            raise UserError(f"{path}, line {number}: {len(fields)} fields instead of {len(columns)}")
        *texts, last = (fields[position].strip() for position in positions)
        if not testing and task.classes and last not in task.classes:
            raise UserError(f"{path}, line {number}: label {last!r} is none of {', '.join(task.classes)}")
        examples.append(Example(tuple(texts), "" if testing else last, last if testing else str(number)))
    skipped = f", {broken_rows} broken rows left out" if broken_rows else ""
    print(f"{task.name} {split}: {len(examples):,} examples{skipped}")
    return examples


def find_tables(task: GlueTask, raw: Path | None, output: Path, dry_run: bool = False) -> Path:
    """Return the folder with a task's tables: within ``raw`` or, downloaded or divided, within ``output``.

    :param raw: folder with a folder for each task; None downloads the tables
    """
    folder = output / task.name
    if raw is not None:
        if task.name != "MRPC" or (raw / task.name / "train.tsv").exists():
            return raw / task.name
        divide_mrpc(raw / task.name, folder)
    elif not dry_run and not (folder / task.tables["train"]).exists():
        for path in obtain_files(task.sources, read_sources(SOURCES_FILE), None, folder).values():
            if path.suffix == ".zip":
                unpack_tables(task, path)
        if task.name == "MRPC":
            divide_mrpc(folder, folder)
    return folder


def unpack_tables(task: GlueTask, archive: Path) -> None:
    """Extract the tables of a task from an archive, and nothing else, into the archive's folder."""
    with zipfile.ZipFile(archive) as zip_file:
        names = zip_file.namelist()
        for table in reversed(task.tables.values()):  # the training table last
            member = f"{task.name}/{table}" if f"{task.name}/{table}" in names else table
            with zip_file.open(member) as source, atomic_write(archive.parent / table) as file:
                shutil.copyfileobj(source, file)


def divide_mrpc(published: Path, output: Path) -> None:
    """Write the three tables of MRPC, made from the published two and the list of development pairs."""
    train, test, development = (read_lines(published / name) for name in MRPC_FILES)
    development_pairs = {tuple(_fields(line)) for line in development if line.strip()}
    header, *rows = train
    pairs = [tuple(_fields(row)[1:3]) for row in rows]
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
