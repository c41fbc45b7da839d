"""``ode-transformer bert-demo``: fine-tune the same model from a pre-trained encoder and from scratch, and compare.

    ode-transformer bert-demo [--text FILE] [--arch NAME] [--updates N]

The two classes are made from the text itself: a line as it was written, or its words in random order. Half of the
lines are shuffled, and no line is both in the text for pre-training and in the task.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ode_transformer.corpora.wheel_corpus import text_hash
from ode_transformer.glue import finetuning, pretraining_text, sentence_data
from ode_transformer.glue.sentence_data import LabelledText
from ode_transformer.recipes import training
from ode_transformer.recipes.architectures import package_architectures
from ode_transformer.recipes.training_reports import TrainingProgress
from ode_transformer.support import commands
from ode_transformer.support.arguments import add_train_flags, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import PACKAGE, lock_directory, write_files
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines
from ode_transformer.support.subword_encoder import SubwordEncoder
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE
from ode_transformer.support.yaml_file import CONFIGS, YamlSection, read_yaml

CONFIG = CONFIGS / "bert_demo.yaml"
TEXT = Path("quickstart/en-de/corpus/train.en")
CLASSES = ("original", "shuffled")
MIN_WORDS = 4


class DemoConfig(YamlSection):
    """Contents of ``configs/bert_demo.yaml``.

    :param pieces: size of the vocabulary
    :param updates: updates of pre-training
    :param train_lines: labelled lines for fine-tuning
    :param test_lines: labelled lines for testing
    :param pretraining: flags of fairseq-train for pre-training
    :param finetuning: flags of fairseq-train for fine-tuning
    """

    pieces: int
    updates: int
    train_lines: int
    test_lines: int
    pretraining: dict[str, Any]
    finetuning: dict[str, Any]


@dataclass(frozen=True)
class DemoOptions:
    """Options of one demonstration.

    :param arch: architecture of the encoder
    :param text: text with one sentence a line
    :param output: folder for everything
    :param updates: updates of pre-training; None takes those of the configuration
    :param train_flags: further flags of fairseq-train for pre-training
    """

    arch: str
    text: Path
    output: Path
    updates: int | None
    train_flags: tuple[str, ...] = ()


def shuffle(line: str, generator: random.Random) -> str:
    """Return the words of a line in another order; not all words may be equal."""
    shuffled = line.split()
    while " ".join(shuffled) == line:
        generator.shuffle(shuffled)
    return " ".join(shuffled)


def label_lines(lines: Sequence[str], train: int, test: int) -> tuple[list[str], dict[str, list[LabelledText]]]:
    """Return the lines for pre-training, and the labelled lines of ``train`` and ``valid``; the same on every machine.

    Labelled lines are lower-cased and lose their final punctuation, which would show the first and the last word.

    :raises UserError: there are too few lines
    """
    unique = sorted({" ".join(line.split()) for line in lines}, key=lambda line: (text_hash(f"{CLASSES} {line}"), line))
    candidates = [line for line in unique if len(set(line.lower().split())) >= MIN_WORDS]
    if len(candidates) < 2 * (train + test):
        raise UserError(
            f"{len(candidates):,} lines of {MIN_WORDS} different words or more are too few: "
            f"{2 * (train + test):,} are needed, twice the labelled ones"
        )
    task_lines = candidates[: train + test]
    generator = random.Random(0)
    examples = []
    for number, line in enumerate(task_lines):
        line = re.sub(r"\s*[.!?:…]+$", "", line.lower())
        shuffled = number % 2 == 1 and len(set(line.split())) > 1
        examples.append(LabelledText((shuffle(line, generator) if shuffled else line,), CLASSES[shuffled]))
    held_out = set(task_lines)
    return [line for line in unique if line not in held_out], {"train": examples[:train], "valid": examples[train:]}


def demonstrate(options: DemoOptions) -> None:
    """Prepare, pre-train, fine-tune twice and print both accuracies; finished jobs are skipped.

    :raises UserError: the architecture cannot be pre-trained, or the text is missing or too short
    """
    config = read_yaml(CONFIG, DemoConfig)
    output = options.output
    if options.arch not in (allowed := package_architectures("masked_lm")):
        raise UserError(f"--arch {options.arch}: what can be pre-trained is {', '.join(allowed)}")
    if not options.text.is_file():
        raise UserError(
            f"--text {options.text}: missing; without --text, first make the corpus: bash scripts/quickstart.sh"
        )
    if options.text.resolve() == (output / "text.txt").resolve():
        raise UserError(f"--text {options.text}: is replaced by the text for pre-training; choose another --output")
    pretraining_lines, task = label_lines(read_lines(options.text), config.train_lines, config.test_lines)
    with lock_directory(output, "preparing data"):
        data, jobs = prepare(pretraining_lines, task, config.pieces, output)
    run_folder = output / training.run_name(options.arch, options.train_flags)
    with lock_directory(run_folder, "training"):
        accuracies = train_and_test(options, config, data, task, Jobs(run_folder, jobs.digest))
    tested = len(task["valid"])
    print(f"\n== {run_folder.name}: original or shuffled, {tested:,} lines that no training has seen")
    for start, accuracy in accuracies.items():
        error = 100 * math.sqrt(accuracy * (1 - accuracy) / tested)
        title = "from scratch" if start == "scratch" else "pre-trained"
        print(f"{title:<13} accuracy {100 * accuracy:.1f} ± {error:.1f}")


@dataclass(frozen=True)
class DemoData:
    """Folders for fairseq.

    :param pretraining: of the text
    :param task: of the labelled lines
    """

    pretraining: Path
    task: Path


def prepare(
    lines: Sequence[str], task: Mapping[str, Sequence[LabelledText]], pieces: int, output: Path
) -> tuple[DemoData, Jobs]:
    """Encode and binarise the lines for pre-training and the labelled ones; return the data and the completed jobs."""
    text, file, pretraining = "".join(f"{line}\n" for line in lines), output / "text.txt", output / "pretraining"
    labelled_text, labelled = output / "order-text", output / "order"
    is_new = not file.exists() or file.read_bytes() != text.encode()
    pretraining_text.check_replaced([labelled_text, labelled, *([file] if is_new else [])], pretraining)
    if is_new:
        write_files(output, {file.name: text}, file.name)
    binary = pretraining_text.prepare([file], pretraining, pieces, 1 / 50)
    data = DemoData(binary, labelled)
    jobs = Jobs(output, Jobs(output).digest_of([text, pieces]))

    def binarise_task() -> None:
        encode = SubwordEncoder("sentencepiece", binary / SENTENCEPIECE_FILE).encode
        sentence_data.binarise(task, CLASSES, encode, binary / "dict.txt", labelled_text, data.task)

    jobs.run("order", [list(map(str, task.values()))], data.task / "label", binarise_task)
    return data, jobs


def train_and_test(
    options: DemoOptions, config: DemoConfig, data: DemoData, task: Mapping[str, Sequence[LabelledText]], jobs: Jobs
) -> dict[str, float]:
    """Pre-train, fine-tune from that and from scratch; return the accuracy of both on the lines of ``valid``.

    :param jobs: in the folder of the run
    """
    run_folder = jobs.directory
    checkpoint = run_folder / "pretrained" / "checkpoint_last.pt"
    command = pretraining_command(options, config, data.pretraining, checkpoint.parent)
    jobs.run(
        "pretrain", command, checkpoint, lambda: _train_anew(command, checkpoint.parent, run_folder / "pretrain.log")
    )
    labels = [example.label for example in task["valid"]]
    model_options = finetuning.model_options(checkpoint)
    accuracies = {}
    for start, start_flags in (("pretrained", {"finetune-from-model": checkpoint}), ("scratch", {})):
        name = f"from-{start}"
        chosen = model_options | config.finetuning | start_flags
        examples, save_dir = len(task["train"]), run_folder / name
        flags = finetuning.training_options(examples, len(CLASSES), False, save_dir, chosen)
        tuned = fine_tune(jobs, name, ["fairseq-train", data.task, *commands.flags(flags)], run_folder)
        predictions = finetuning.predict(tuned, data.task, ["valid"])["valid"]
        accuracies[start] = sum(map(str.__eq__, predictions, labels)) / len(labels)
    return accuracies


def pretraining_command(options: DemoOptions, config: DemoConfig, binary: Path, save_dir: Path) -> list[Any]:
    """Return the command that pre-trains the encoder on the binary text."""
    flags = {
        "user-dir": PACKAGE,
        "arch": options.arch,
        "distributed-world-size": 1,  # with fairseq's, every GPU of the machine adds to the batch
        "task": "masked_lm",
        "criterion": "masked_lm",
        "max-update": config.updates if options.updates is None else options.updates,
        "skip-invalid-size-inputs-valid-test": True,
        "required-batch-size-multiple": 1,
        "num-workers": 0,
        "data-buffer-size": 0,
        "cpu": not torch.cuda.is_available(),
        "save-dir": save_dir,
        "no-epoch-checkpoints": True,
        "log-format": "json",
        "log-interval": 200,
        **config.pretraining,
    }
    return ["fairseq-train", binary, *commands.flags(flags), *options.train_flags]


def fine_tune(jobs: Jobs, name: str, command: list[Any], run_folder: Path) -> Path:
    """Run a fine-tuning unless it is finished; return its last checkpoint."""
    checkpoint = run_folder / name / "checkpoint_last.pt"
    jobs.run(name, command, checkpoint, lambda: _train_anew(command, checkpoint.parent, run_folder / f"{name}.log"))
    return checkpoint


def _train_anew(command: list[Any], checkpoints: Path, log: Path) -> None:
    shutil.rmtree(checkpoints, ignore_errors=True)
    with TrainingProgress() as progress:
        commands.run(command, log, progress)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer bert-demo``."""
    parser.epilog = "After an interruption the same command continues with the first unfinished job."
    parser.add_argument(
        "--text",
        type=Path,
        default=TEXT,
        metavar="FILE",
        help=f"one sentence a line (default: {TEXT}, which scripts/quickstart.sh makes)",
    )
    parser.add_argument(
        "--arch",
        default="macaron_bert_tiny",
        metavar="NAME",
        help="macaron_bert_tiny (default), ode_bert_tiny or another encoder",
    )
    parser.add_argument(
        "--updates", type=positive_int, metavar="N", help="updates of pre-training (default: configs/bert_demo.yaml)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("bert_demo"),
        metavar="DIR",
        help="folder for everything (default: bert_demo)",
    )
    add_train_flags(parser, "flags of fairseq-train for pre-training, such as --encoder-ode-scheme rk2")


def run(args: argparse.Namespace) -> int:
    """Run the demonstration; return the exit status."""
    demonstrate(DemoOptions(args.arch, args.text, args.output, args.updates, args.train_flags))
    return 0
