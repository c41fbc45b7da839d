"""Pre-training shown to be of use: the same model, fine-tuned from a pre-trained encoder and from scratch.

    bash scripts/bert_demo.sh [--text FILE] [--arch NAME] [--updates N]

The two-class task is made from the text itself: is a line as it was written, or are its words in random order? Half of
the lines are shuffled, and no line is in the text for pre-training and in the task.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ode_transformer.corpora.parallel_text import digest
from ode_transformer.corpora.vocabulary import MODEL
from ode_transformer.glue import finetuning, pretraining_text, sentence_data
from ode_transformer.glue.sentence_data import Labelled
from ode_transformer.recipes import training
from ode_transformer.recipes.machine import on_gpu
from ode_transformer.recipes.progress import progress
from ode_transformer.support import commands
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import place
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines
from ode_transformer.support.schema import CONFIGS, Checked, read_yaml

CONFIG = CONFIGS / "bert_demo.yaml"
TEXT = Path("quickstart/en-de/corpus/train.en")
CLASSES = ("original", "shuffled")
MIN_WORDS = 4


class DemoConfig(Checked):
    """
    :param pieces: of the vocabulary
    :param updates: of pre-training
    :param train_lines: labelled lines for fine-tuning
    :param test_lines: and for testing it
    :param pretraining: flags of fairseq-train
    :param finetuning: likewise
    """

    pieces: int
    updates: int
    train_lines: int
    test_lines: int
    pretraining: dict[str, Any]
    finetuning: dict[str, Any]


def shuffle(line: str, generator: random.Random) -> str:
    """The line's words, which are not all the same, in another order."""
    words = line.split()
    while " ".join(words) == line:
        generator.shuffle(words)
    return " ".join(words)


def divide(lines: Sequence[str], train: int, test: int) -> tuple[list[str], dict[str, list[Labelled]]]:
    """The text for pre-training, and the labelled lines of ``train`` and ``valid``; the same on every machine.

    Case is folded, because capitals alone would show the first word; so is the mark that ends a sentence.

    :raises UserError: there are too few lines
    """
    unique = sorted({" ".join(line.split()) for line in lines}, key=lambda line: (digest(f"{CLASSES} {line}"), line))
    fit = [line for line in unique if len(set(line.lower().split())) >= MIN_WORDS]
    if len(fit) < 2 * (train + test):
        raise UserError(f"{len(fit):,} lines of {MIN_WORDS} words are too few for {train + test:,} labelled ones")
    task = fit[: train + test]
    held_out = set(task)
    generator = random.Random(0)
    labelled = []
    for number, line in enumerate(task):
        line = re.sub(r"\s*[.!?:…]+$", "", line.lower())
        changed = number % 2 == 1 and len(set(line.split())) > 1
        labelled.append(Labelled((shuffle(line, generator) if changed else line,), CLASSES[changed]))
    return [line for line in unique if line not in held_out], {"train": labelled[:train], "valid": labelled[train:]}


def show(arch: str, text: Path, output: Path, updates: int | None, train_flags: Sequence[str]) -> None:
    """Run all jobs; those that are done are skipped."""
    config = read_yaml(CONFIG, DemoConfig)
    if arch not in (known := finetuning.architectures()):
        raise UserError(f"--arch {arch}: what can be pre-trained is {', '.join(known)}")
    if not text.is_file():
        raise UserError(f"--text {text}: missing; without --text, first make the corpus: bash scripts/quickstart.sh")
    rest, task = divide(read_lines(text), config.train_lines, config.test_lines)
    plain = "".join(f"{line}\n" for line in rest)
    output.mkdir(parents=True, exist_ok=True)
    if not (output / "text.txt").exists() or (output / "text.txt").read_text(encoding="utf-8") != plain:
        place(output, {"text.txt": plain}, "text.txt")
    binary = pretraining_text.prepare([output / "text.txt"], output / "pretraining", config.pieces, 1 / 50)
    data = output / "order"
    jobs = Jobs(output, Jobs(output).digest_of([plain, config.pieces]))

    def make_task() -> None:
        encode = pretraining_text.encoder(binary / MODEL)
        sentence_data.binarise(task, CLASSES, encode, binary / "dict.txt", output / "order-text", data)

    jobs.run("order", [list(map(str, task.values()))], data / "label", make_task)
    run = output / training.run_name(arch, train_flags)
    run.mkdir(exist_ok=True)
    jobs = Jobs(run, jobs.digest)
    checkpoint = run / "pretrained" / "checkpoint_last.pt"
    options = {
        "user-dir": finetuning.PACKAGE,
        "arch": arch,
        "distributed-world-size": 1,  # with fairseq's, every GPU of the machine adds to the batch
        "task": "masked_lm",
        "criterion": "masked_lm",
        "max-update": config.updates if updates is None else updates,
        "skip-invalid-size-inputs-valid-test": True,
        "required-batch-size-multiple": 1,
        "num-workers": 0,
        "data-buffer-size": 0,
        "cpu": not on_gpu(),
        "save-dir": checkpoint.parent,
        "no-epoch-checkpoints": True,
        "log-format": "json",
        "log-interval": 200,
        **config.pretraining,
    }
    command = ["fairseq-train", binary, *commands.flags(options), *train_flags]

    def pretrain() -> None:
        shutil.rmtree(checkpoint.parent, ignore_errors=True)
        commands.run(command, run / "pretrain.log", progress)

    jobs.run("pretrain", command, checkpoint, pretrain)
    right = {}
    truth = [example.label for example in task["valid"]]
    built = finetuning.model_options(checkpoint)
    for kind, start in (("pretrained", {"finetune-from-model": checkpoint}), ("scratch", {})):
        save_dir = run / f"from-{kind}"
        chosen = built | config.finetuning | start
        flags = finetuning.training_options(data, len(task["train"]), len(CLASSES), False, save_dir, chosen)
        tuning = ["fairseq-train", data, *commands.flags(flags)]

        def tune(kind: str = kind, save_dir: Path = save_dir, tuning: list = tuning) -> None:
            shutil.rmtree(save_dir, ignore_errors=True)
            commands.run(tuning, run / f"from-{kind}.log", progress)

        jobs.run(f"from-{kind}", tuning, save_dir / "checkpoint_last.pt", tune)
        said = finetuning.predict(save_dir / "checkpoint_last.pt", data, ["valid"])["valid"]
        right[kind] = sum(answer == label for answer, label in zip(said, truth, strict=True)) / len(truth)
    print(f"\n== {run.name}: original or shuffled, {len(truth):,} lines that no training has seen")
    for kind, share in right.items():
        error = 100 * math.sqrt(share * (1 - share) / len(truth))
        print(f"{'from scratch' if kind == 'scratch' else 'pre-trained':<13} accuracy {100 * share:.1f} ± {error:.1f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="bert_demo", description="Shows what pre-training is good for.")
    parser.add_argument("--text", type=Path, default=TEXT, help="a sentence a line (default: the quickstart's English)")
    parser.add_argument("--arch", default="macaron_bert_tiny", help="default: %(default)s")
    parser.add_argument("--updates", type=positive_int, help="of pre-training (default: the recipe's)")
    parser.add_argument("--output", type=Path, default=Path("bert_demo"), help="folder for everything")
    own, extra = commands.divide_words(argv)
    args = parser.parse_args(own)
    return commands.status_of(parser.prog, lambda: show(args.arch, args.text, args.output, args.updates, extra))


if __name__ == "__main__":
    sys.exit(main())
