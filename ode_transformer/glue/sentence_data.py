"""Labelled texts in the layout of fairseq's task sentence_prediction: ``input0``, ``input1`` and ``label``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.support import commands
from ode_transformer.support.files import write_files


@dataclass(frozen=True)
class LabelledText:
    """One or two texts with their label, which is empty in a test split."""

    texts: tuple[str, ...]
    label: str


def binarise(
    splits: Mapping[str, Sequence[LabelledText]],
    classes: Sequence[str],
    encode: Callable[[str], str],
    dictionary: Path,
    text: Path,
    binary: Path,
) -> None:
    """Write encoded texts, then fairseq's binary data.

    :param splits: examples by fairseq's names: train, valid, valid1, …, test, …; test splits have no labels
    :param classes: labels in the order of the head's outputs; empty where labels are numbers
    :param encode: turns a line into pieces separated by spaces
    :param dictionary: dictionary of the pre-trained model
    :param text: folder for the encoded texts
    :param binary: folder for fairseq
    """
    inputs = [f"input{number}" for number in range(len(next(iter(splits.values()))[0].texts))]
    labelled_splits = [split for split in splits if not split.startswith("test")]
    files = {}
    for split, examples in splits.items():
        for number, name in enumerate(inputs):
            files[f"{split}.{name}"] = "".join(f"{encode(example.texts[number])}\n" for example in examples)
        if split in labelled_splits:
            files[f"{split}.label"] = "".join(f"{example.label}\n" for example in examples)
    if classes:
        files["classes.txt"] = "".join(f"{name} 1\n" for name in classes)
    write_files(text, files, last=f"{next(iter(splits))}.{inputs[0]}")
    shutil.rmtree(binary, ignore_errors=True)
    for name in inputs:
        _preprocess(splits, name, text, dictionary, binary)
    if classes:
        _preprocess(labelled_splits, "label", text, text / "classes.txt", binary)
    else:
        for split in labelled_splits:
            (binary / "label").mkdir(exist_ok=True)
            shutil.copy(text / f"{split}.label", binary / "label")


def _preprocess(splits: Iterable[str], name: str, text: Path, dictionary: Path, binary: Path) -> None:
    """Binarise the files called ``name`` of all splits with a dictionary."""
    options: dict[str, object] = {"only-source": True, "srcdict": dictionary, "destdir": binary / name}
    for kind in ("train", "valid", "test"):
        prefixes = [str(text / f"{split}.{name}") for split in splits if split.startswith(kind)]
        options[f"{kind}pref"] = ",".join(prefixes) or None
    commands.run(["fairseq-preprocess", *commands.flags(options)], text / f"preprocess-{name}.log")
