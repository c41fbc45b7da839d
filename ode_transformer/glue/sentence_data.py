"""Labelled texts as fairseq's task sentence_prediction reads them: ``input0``, ``input1`` and ``label``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.support import commands
from ode_transformer.support.files import place


@dataclass(frozen=True)
class Labelled:
    """One or two texts and their label; a label that nobody knows is empty."""

    texts: tuple[str, ...]
    label: str


def binarise(
    splits: Mapping[str, Sequence[Labelled]],
    classes: Sequence[str],
    encode: Callable[[str], str],
    dictionary: Path,
    text: Path,
    binary: Path,
) -> None:
    """Writes encoded texts, then fairseq's binary form of them.

    :param splits: by fairseq's names: train, valid, valid1, …, test, …; test splits have no labels
    :param classes: in the order of the head's outputs; none where labels are numbers
    :param encode: a line -> pieces with spaces between them
    :param dictionary: of the pre-trained model
    :param text: folder for the encoded texts
    :param binary: folder for fairseq
    """
    inputs = [f"input{number}" for number in range(len(next(iter(splits.values()))[0].texts))]
    files = {}
    for split, examples in splits.items():
        for number, name in enumerate(inputs):
            files[f"{split}.{name}"] = "".join(f"{encode(example.texts[number])}\n" for example in examples)
        if not split.startswith("test"):
            files[f"{split}.label"] = "".join(f"{example.label}\n" for example in examples)
    if classes:
        files["classes.txt"] = "".join(f"{name} 1\n" for name in classes)
    place(text, files, last=f"{next(iter(splits))}.{inputs[0]}")
    shutil.rmtree(binary, ignore_errors=True)
    for name in inputs:
        _preprocess(splits, name, text, dictionary, binary)
    labelled = [split for split in splits if not split.startswith("test")]
    if classes:
        _preprocess(labelled, "label", text, text / "classes.txt", binary)
    else:
        for split in labelled:
            (binary / "label").mkdir(exist_ok=True)
            shutil.copy(text / f"{split}.label", binary / "label")


def _preprocess(splits: Sequence[str] | Mapping, name: str, text: Path, dictionary: Path, binary: Path) -> None:
    options: dict[str, object] = {"only-source": True, "srcdict": dictionary, "destdir": binary / name}
    for kind in ("train", "valid", "test"):
        paths = [str(text / f"{split}.{name}") for split in splits if split.startswith(kind)]
        options[f"{kind}pref"] = ",".join(paths) or None
    commands.run(["fairseq-preprocess", *commands.flags(options)], text / f"preprocess-{name}.log")
