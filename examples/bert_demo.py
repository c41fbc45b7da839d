"""Pre-train a small BERT on a CPU in minutes, fine-tune it, and compare with fine-tuning from scratch.

    bash scripts/quickstart.sh                                  # once: makes the English text
    python examples/bert_demo.py

or ``python examples/bert_demo.py TEXT [FLAGS OF fairseq-train]`` with a text of one sentence a line, and flags such as
``--encoder-ode-scheme rk2``. Every step is a command of the package, by the recipe bert_demo.yaml beside this file.

The task has two classes: is a line as written (1), or are its words in random order (0)? Its tables have the form of
GLUE's SST-2, so that ``ode-transformer analyse glue`` reads them. No line is both in the text for pre-training and in
the task. Everything lies in bert_demo/; after an interruption the same command continues.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OUTPUT = Path("bert_demo")
TEXT = Path("quickstart/en-de/corpus/train.en")
TRAIN, TEST, MIN_WORDS = 3000, 2000, 4
# One fine-tuning: the values were chosen for about 26,000 short lines.
GRID = """\
grid: {batch-size: [32], lr: [0.0005], max-epoch: [4], seed: [1]}
train: {optimizer: fused_adam, adam-betas: "(0.9, 0.98)", clip-norm: 1.0, dropout: 0.1, attention-dropout: 0.1}
"""


def shuffle(line: str, generator: random.Random) -> str:
    """Return the words of a line in another order; not all words may be equal."""
    words = line.split()
    while " ".join(words) == line:
        generator.shuffle(words)
    return " ".join(words)


def label_lines(lines: Sequence[str], count: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Return the lines for pre-training, and ``count`` others with their classes.

    Labelled lines are lower-cased and lose their final punctuation, which would show the first and the last word.
    """
    generator = random.Random(0)
    unique = sorted({" ".join(line.split()) for line in lines} - {""})
    generator.shuffle(unique)
    labelled: dict[str, tuple[str, int]] = {}
    for line in unique:
        plain = re.sub(r"\s*[.!?:…]+$", "", line.lower())
        if len(labelled) < count and len(set(plain.split())) >= MIN_WORDS:
            label = len(labelled) % 2
            labelled[line] = (plain if label else shuffle(plain, generator), label)
    return [line for line in unique if line not in labelled], list(labelled.values())


def write_inputs(text: Path) -> None:
    """Write the text for pre-training, the tables of the task, the recipe and the grid."""
    lines = text.read_text(encoding="utf-8").splitlines()
    task = OUTPUT / "tables" / "SST-2"
    task.mkdir(parents=True, exist_ok=True)
    train = min(TRAIN, len(lines) // 4)
    others, labelled = label_lines(lines, train + min(TEST, train))
    (OUTPUT / "text.txt").write_text("".join(f"{line}\n" for line in others), encoding="utf-8")
    for split, rows in (("train", labelled[:train]), ("dev", labelled[train:])):
        table = "sentence\tlabel\n" + "".join(f"{line}\t{label}\n" for line, label in rows)
        (task / f"{split}.tsv").write_text(table, encoding="utf-8")
    (task / "test.tsv").write_text("index\tsentence\n0\tno test\n", encoding="utf-8")
    (OUTPUT / "grid.yaml").write_text(GRID, encoding="utf-8")
    shutil.copy(Path(__file__).with_suffix(".yaml"), OUTPUT / "bert.yaml")


def run(*words: object) -> None:
    """Run a command of the package."""
    subprocess.run(["ode-transformer", *map(str, words)], check=True)


def main(text: Path, flags: Sequence[str]) -> None:
    """Pre-train and fine-tune; then fine-tune a model that was pre-trained for one update, which is from scratch."""
    write_inputs(text)
    results = {}
    for name, further in (("pre-trained", []), ("from scratch", ["--max-update", "1"])):
        output = OUTPUT / name.replace(" ", "-")
        run("reproduce", OUTPUT / "bert.yaml", "--output", output, "--gpus", 0, "--", *flags, *further)
        (model,) = output.glob("*/*/model/model.pt")
        tables = ("--raw", OUTPUT / "tables", "--tasks", "SST-2", "--config", OUTPUT / "grid.yaml")
        run("analyse", "glue", "--path", model, *tables, "--output", output / "glue")
        results[name] = (output / "glue" / "results.md").read_text(encoding="utf-8").splitlines()[2].split("|")[2]
    for name, score in results.items():
        print(f"{name:<13}{score}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TEXT, sys.argv[2:])
