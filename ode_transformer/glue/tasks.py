"""The eight tasks of the GLUE benchmark on which Macaron Net (Lu et al. 2019, B.3) is evaluated, and their files.

A task is a folder of tab-separated tables without quoting, as the benchmark publishes them. WNLI is left out, as in
the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import read_lines


@dataclass(frozen=True)
class GlueTask:
    """A task and the columns of its tables.

    :param name: name of the task and of its folder
    :param texts: columns of the one or two texts
    :param label: column of the label
    :param classes: possible labels; empty where the label is a number
    :param metrics: keys of ``METRICS``; their mean ranks the runs
    :param sources: entries of ``configs/sources.yaml`` to download
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
    sources: tuple[str, ...] = ()
    tables: dict[str, str] = field(
        default_factory=lambda: {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
    )
    submissions: dict[str, str] = field(default_factory=dict)
    index: str = "index"
    columns: tuple[str, ...] = ()
    broken_rows: bool = False

    @property
    def outputs(self) -> int:
        """Number of outputs of the classification head: one for each class, or one number."""
        return len(self.classes) or 1

    def submission(self, split: str) -> str:
        """Return the name of the submitted file for a test split."""
        return self.submissions.get(split, self.name)


_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")

TASKS = {
    task.name: task
    for task in (
        GlueTask(
            "CoLA",
            ("sentence",),
            metrics=("matthews",),
            sources=("glue_cola",),
            columns=("source", "label", "mark", "sentence"),
        ),
        GlueTask("SST-2", ("sentence",), sources=("glue_sst2",)),
        GlueTask(
            "MRPC",
            ("#1 String", "#2 String"),
            label="Quality",
            metrics=("f1", "accuracy"),
            sources=("glue_mrpc_train", "glue_mrpc_test", "glue_mrpc_dev_ids"),
        ),
        GlueTask(
            "STS-B",
            _PAIR,
            label="score",
            classes=(),
            metrics=("pearson", "spearman"),
            sources=("glue_stsb",),
        ),
        GlueTask(
            "QQP",
            ("question1", "question2"),
            label="is_duplicate",
            metrics=("f1", "accuracy"),
            sources=("glue_qqp",),
            index="id",
            broken_rows=True,
        ),
        GlueTask(
            "MNLI",
            _PAIR,
            label="gold_label",
            classes=("contradiction", "neutral", "entailment"),
            sources=("glue_mnli",),
            tables={
                "train": "train.tsv",
                "valid": "dev_matched.tsv",
                "valid1": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test1": "test_mismatched.tsv",
            },
            submissions={"test": "MNLI-m", "test1": "MNLI-mm"},
        ),
        GlueTask("QNLI", ("question", "sentence"), classes=_ENTAILMENT, sources=("glue_qnli",)),
        GlueTask("RTE", _PAIR, classes=_ENTAILMENT, sources=("glue_rte",)),
    )
}
STS_RANGE = (0.0, 5.0)


@dataclass(frozen=True)
class Example:
    """One row of a table: one or two texts, the label (empty in a test table), the number."""

    texts: tuple[str, ...]
    label: str
    index: str


def read_table(task: GlueTask, folder: Path, split: str) -> tuple[list[Example], int]:
    """Return the examples of a split, and the number of broken rows that were left out.

    :param folder: folder of the task's tables
    :raises UserError: names the file and, where possible, the line: a column or field is missing, a label is unknown,
        or there are no examples
    """
    path, testing = folder / task.tables[split], split.startswith("test")
    if not path.is_file():
        raise UserError(f"{path}: missing; {task.name} has {', '.join(task.tables.values())}")
    lines = read_lines(path)
    first = 1
    columns = list(task.columns)
    if testing or not columns:
        columns, first = (lines[0].removeprefix("\ufeff").split("\t") if lines else []), 2
    needed = (*task.texts, task.index) if testing else (*task.texts, task.label)
    if absent := [name for name in needed if name not in columns]:
        raise UserError(f"{path}: no column {absent[0]!r}; there are {', '.join(map(repr, columns))}")
    positions = [columns.index(name) for name in needed]
    examples, broken_rows = [], 0
    for number, line in enumerate(lines[first - 1 :], first):
        fields = line.split("\t")
        if len(fields) != len(columns):
            if task.broken_rows and not testing:
                broken_rows += 1
                continue
            raise UserError(f"{path}, line {number}: {len(fields)} fields instead of {len(columns)}")
        *texts, last = (fields[position].strip() for position in positions)
        if not testing:
            check_label(task, last, f"{path}, line {number}")
        examples.append(Example(tuple(texts), "" if testing else last, last if testing else str(number - first)))
    if not examples:
        raise UserError(f"{path}: no examples")
    return examples, broken_rows


def check_label(task: GlueTask, label: str, location: str) -> None:
    """Refuse a label that is not a class of the task, or not a number in its range.

    :param location: file and line of the label
    :raises UserError: names the location and what is allowed
    """
    if task.classes:
        if label not in task.classes:
            raise UserError(f"{location}: label {label!r} is none of {', '.join(task.classes)}")
        return
    try:
        in_range = STS_RANGE[0] <= float(label) <= STS_RANGE[1]
    except ValueError:
        in_range = False
    if not in_range:
        raise UserError(f"{location}: label {label!r} is not a number from {STS_RANGE[0]:g} to {STS_RANGE[1]:g}")


def submission_text(task: GlueTask, predictions: list[tuple[str, str]]) -> str:
    """Return the text of a submission file.

    :param predictions: for each example its number and its class or, for STS-B, a score, which is clipped to the range
    :raises UserError: a prediction is nan: training has diverged
    """
    rows = ["index\tprediction"]
    for index, value in predictions:
        if value == "nan":
            raise UserError(f"{task.name}, test example {index}: the best run predicts nan, so all have diverged")
        if not task.classes:
            value = f"{min(max(float(value), STS_RANGE[0]), STS_RANGE[1]):.3f}"
        rows.append(f"{index}\t{value}")
    return "\n".join(rows) + "\n"
