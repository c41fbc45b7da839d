"""The sentences of a binarised data set, and batches of them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.errors import UserError


def read_sentences(task: Any, path: Path, data: Path, split: str, count: int | None = None) -> list[dict[str, Any]]:
    """The first sentences of a split, without those that no model of the task takes.

    :param path: checkpoint that the task is of, and
    :param data: folder of the split, both for what an error says
    :param count: how many are read at most
    :return: fairseq's samples: ``id`` (the place in the split), ``source``, ``target``
    :raises UserError: the data are broken, belong to other dictionaries, or none are left
    """
    failure = ""
    with contextlib.redirect_stderr(io.StringIO()):  # fairseq's reader, when it fails, fails again when it is deleted
        try:
            rows = _read(task, split, count)
        except (AssertionError, OSError, ValueError) as error:
            failure = str(error)
    if failure:
        raise UserError(f"{data}: no data of the split {split!r} that belongs to {path}: {failure}")
    return rows


def _read(task: Any, split: str, count: int | None) -> list[dict[str, Any]]:
    task.load_dataset(split)
    dataset = task.dataset(split)
    rows = [dataset[number] for number in range(len(dataset) if count is None else min(count, len(dataset)))]
    dictionaries = (task.source_dictionary, task.target_dictionary)
    for side, dictionary, longest in zip(("source", "target"), dictionaries, task.max_positions(), strict=True):
        if any(row[side] is None for row in rows):
            raise ValueError(f"it has no {side}")
        if any(row[side].max() >= len(dictionary) for row in rows):
            raise ValueError("it has tokens that are not in the dictionary")
        rows = [row for row in rows if len(row[side]) <= longest]
    if not rows:
        raise ValueError("it has no sentence that the model takes")
    return rows


def batched(task: Any, split: str, rows: Sequence[dict[str, Any]], max_tokens: int) -> Iterator[dict[str, Any]]:
    """fairseq's batches of sentences of similar length, short ones first.

    :param max_tokens: of the longer side of a batch, padding included; a longer sentence is a batch of its own
    """
    collate = task.dataset(split).collater
    batch: list[dict[str, Any]] = []
    longest = 0
    for row in sorted(rows, key=lambda row: (_length(row), int(row["id"]))):
        if batch and (len(batch) + 1) * max(longest, _length(row)) > max_tokens:
            yield collate(batch)
            batch, longest = [], 0
        batch.append(row)
        longest = max(longest, _length(row))
    if batch:
        yield collate(batch)


def _length(row: dict[str, Any]) -> int:
    return max(len(row["source"]), len(row["target"]))
