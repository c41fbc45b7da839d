"""``ode-transformer measure-scaling``: measure the two gradients of model scaling, and solve for a larger architecture.

    ode-transformer measure-scaling --arch NAME [--updates N] [--seeds 1,2,3] [-- FLAGS OF fairseq-train]

    L'_l = (L(l + ε, w) - L(l, w)) / ε      L'_w = (L(l, w + ε) - L(l, w)) / ε      Reformer (Li et al. 2020), Eq. 10

L is what Eq. 9 maximises on the validation set; the paper chooses cross-entropy. Here L = -(mean of -log p of all
target tokens, end symbols included, without label smoothing, in nats), for the checkpoint of a training that has the
best validation loss. l + ε means ε more layers in each stack, w + ε an inner size larger by ε times the width. Each
seed takes three short trainings: the base architecture, the deeper and the wider one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from ode_transformer.analysis.scaling.architectures import model_size, training_options
from ode_transformer.analysis.scaling.equations import ModelSize, ScalingStep, check_beta
from ode_transformer.analysis.scaling.scale import architecture_lines
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import cross_entropy, predict_tokens
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.recipes import quickstart, training
from ode_transformer.recipes.options import QUICKSTART_TASKS
from ode_transformer.recipes.quickstart import QuickstartOptions
from ode_transformer.recipes.training_reports import TrainingProgress
from ode_transformer.support import commands
from ode_transformer.support.arguments import add_train_flags, positive_int, whole_numbers
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import PACKAGE, file_stamp, lock_directory, write_files
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.json_file import read_json
from ode_transformer.support.tables import markdown_table


@dataclass(frozen=True)
class TrainingData:
    """Data of the trainings.

    :param folder: output of fairseq-preprocess
    :param digest: digest that changes if the data do
    :param flags: flags of fairseq-train that belong to the data
    """

    folder: Path
    digest: str
    flags: dict[str, Any]


@dataclass(frozen=True)
class ScalingOptions:
    """Options of the measurement.

    :param arch: architecture to scale
    :param updates: updates of each training
    :param epsilon: layers, or widths of inner size, by which the larger models exceed the base
    :param beta: growth factor of Eq. 11
    :param seeds: seeds, each with three trainings; the gradients are averaged
    :param output: folder for everything
    :param train_flags: further flags of fairseq-train
    """

    arch: str
    updates: int
    epsilon: int
    beta: float
    seeds: tuple[int, ...]
    output: Path
    train_flags: tuple[str, ...]


def quickstart_data(folder: Path, arch: str, task: str | None, target: str | None, wheels: Path | None) -> TrainingData:
    """Return the quickstart's data with the training flags of its recipe; data that are missing are prepared.

    :param folder: folder of the quickstart
    """
    options = QuickstartOptions(task or "text", target, arch, output=folder, wheels=wheels)
    experiment = quickstart.plan(options)
    quickstart.prepare(experiment, options)
    data = experiment.data
    return TrainingData(data.binary, data.prepared_jobs().digest, data.language_flags() | experiment.recipe.train)


def preprocessed_data(folder: Path) -> TrainingData:
    """Return data that the user has preprocessed.

    :raises UserError: the folder is not an output of fairseq-preprocess
    """
    if not sorted(folder.glob("train.*.bin")) or not sorted(folder.glob("valid.*.bin")):
        raise UserError(f"--data {folder}: not a folder of fairseq-preprocess with a training and a validation set")
    files = [[file.name, *file_stamp(file)] for file in sorted(folder.iterdir())]
    return TrainingData(folder, Jobs(folder).digest_of(files), {})


def validation_loss(checkpoint: Path, data: Path, max_tokens: int = 4000) -> float:
    """Return the cross-entropy of a checkpoint on the validation set, in nats per token.

    fairseq's log has three decimals, too few for a difference of losses.
    """
    model, _, task = load_trained_model(checkpoint, data)
    valid = Split(model, task, data, "valid", checkpoint)
    batches = map(valid.sample, valid.batches(None, max_tokens))
    return cross_entropy(
        predict_tokens(model.cuda() if torch.cuda.is_available() else model, batches, task.target_dictionary.pad())
    )


def gradient(base_loss: float, larger_loss: float, epsilon: int) -> float:
    """Return the gradient of Eq. 10 from two losses; it is positive where the larger model has the lower loss."""
    return (base_loss - larger_loss) / epsilon


def train_and_measure(run_folder: Path, data: TrainingData, flags: Sequence[str], updates: int) -> float:
    """Train for so many updates, or resume, unless it is done; return the validation loss of the best checkpoint."""
    checkpoints, result = run_folder / "checkpoints", run_folder / "loss.json"
    command: list[str | Path] = ["fairseq-train", data.folder, *flags, "--save-dir", checkpoints]
    jobs = Jobs(run_folder, data.digest)

    def train_and_evaluate() -> None:
        with TrainingProgress(last_update=updates) as progress:
            training.train(command, run_folder, checkpoints, jobs.digest_of(flags), progress, updates)
        loss = validation_loss(checkpoints / "checkpoint_best.pt", data.folder)
        write_files(run_folder, {result.name: json.dumps({"validation_loss": loss})}, result.name)

    with lock_directory(run_folder, "training"):
        jobs.run(run_folder.name, flags, result, train_and_evaluate)
    return float(read_json(result, dict)["validation_loss"])


def gradient_table(losses: dict[int, dict[str, float]], epsilon: int) -> tuple[str, tuple[float, float]]:
    """Return losses and gradients as a Markdown table, and the means of both gradients over the seeds.

    :param losses: seed -> name of the model -> validation loss, in the order base, deeper, wider
    """
    titles = ["seed", *(f"loss, {name}" for name in next(iter(losses.values()))), "L'_l", "L'_w"]
    rows, gradients = [], []
    for seed, by_model in losses.items():
        base, *larger = by_model.values()
        gradients.append(tuple(gradient(base, loss, epsilon) for loss in larger))
        rows.append([str(seed), *(f"{value:.5f}" for value in (base, *larger, *gradients[-1]))])
    by_depth, by_width = zip(*gradients, strict=True)
    if len(losses) > 1:
        means = [f"{mean(g):.5f} ± {stdev(g) / math.sqrt(len(g)):.5f}" for g in (by_depth, by_width)]
        rows.append(["mean ± standard error", "", "", "", *means])
    return markdown_table(titles, rows, "r" * len(titles)), (mean(by_depth), mean(by_width))


def measure(options: ScalingOptions, data: TrainingData, size: ModelSize) -> None:
    """Run all trainings, skipping finished ones; print and write the table, and print the solution.

    :param size: size of the base architecture with its flags
    :raises UserError: a training fails, or a gradient has no solution
    """
    train_options = training_options(options.arch, [*commands.flags(data.flags), *options.train_flags])
    updates = train_options.max_update or options.updates
    run_name = training.run_name(options.arch, ["updates", str(options.updates), *options.train_flags])
    folder = options.output / data.folder.resolve().parent.name / run_name
    steps = {
        "base": ScalingStep(1, 0, 0),
        f"l+{options.epsilon}": ScalingStep(1, options.epsilon, 0),
        f"w+{options.epsilon}": ScalingStep(1, 0, options.epsilon),
    }
    losses: dict[int, dict[str, float]] = {}
    for seed in options.seeds:
        losses[seed] = {}
        for name, step in steps.items():
            flags = training_flags(options, data, size.enlarged(step), seed)
            losses[seed][name] = train_and_measure(folder / f"{name}-seed{seed}", data, flags, updates)
    table, gradients = gradient_table(losses, options.epsilon)
    print(f"\n== {folder}: validation loss in nats per token after {updates} updates\n{table}\n")
    numbers = {"epsilon": options.epsilon, "beta": options.beta, "losses": losses, "gradients": gradients}
    write_files(
        folder, {"scaling.md": table + "\n", "scaling.json": json.dumps(numbers, indent=1) + "\n"}, "scaling.md"
    )
    lines = architecture_lines(train_options, gradients, options.beta)
    print("\n".join([f"gradients {gradients[0]:.5f} {gradients[1]:.5f}, beta {options.beta:g}", *lines]))


def training_flags(options: ScalingOptions, data: TrainingData, size: ModelSize, seed: int) -> list[str]:
    """Return the flags of one training; where fairseq-train reads a flag twice, the later one counts."""
    flags = {
        "user-dir": PACKAGE,
        "arch": options.arch,
        "distributed-world-size": 1,  # with fairseq's, every GPU of the machine adds to the batch
        "cpu": not torch.cuda.is_available(),
        **training.RESUMABLE_FLAGS,
        "no-epoch-checkpoints": True,
        "keep-interval-updates": 1,
        "log-format": "json",
        "log-interval": 25,
        **data.flags,
        "max-update": options.updates,
        "save-interval-updates": max(1, options.updates // 10),
    }
    return [*commands.flags(flags), *options.train_flags, *commands.flags({**size.options(), "seed": seed})]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer measure-scaling``."""
    parser.epilog = "After an interruption the same command resumes where it stopped. Every fairseq command is printed."
    parser.add_argument("--arch", required=True, metavar="NAME", help="registered architecture to scale")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of fairseq-preprocess (default: the quickstart's data)"
    )
    parser.add_argument("--task", choices=QUICKSTART_TASKS, help="task of the quickstart (default: text)")
    parser.add_argument("--target", metavar="LANG", help="target language of the quickstart's text (default: de)")
    parser.add_argument(
        "--quickstart",
        type=Path,
        metavar="DIR",
        help="folder of the quickstart (default: quickstart)",
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="DIR", help="folder with the wheels of its data, instead of downloading them"
    )
    parser.add_argument(
        "--updates", type=positive_int, default=1000, metavar="N", help="updates of each training (default: 1000)"
    )
    parser.add_argument(
        "--epsilon",
        type=positive_int,
        default=1,
        metavar="E",
        help="layers, or widths of inner size, added to measure a gradient (default: 1, the paper's)",
    )
    parser.add_argument("--beta", type=float, default=2.0, help="how many times as many parameters (default: 2)")
    parser.add_argument(
        "--seeds",
        type=whole_numbers,
        default=(1,),
        metavar="S,S,...",
        help="three trainings for each; gradients are averaged (default: 1)",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("scaling"), metavar="DIR", help="folder for everything (default: scaling)"
    )
    add_train_flags(parser, "flags of fairseq-train; with --data these are optimizer, batches and everything else")


def run(args: argparse.Namespace) -> int:
    """Measure the gradients and print the larger architecture; return the exit status."""
    if args.data is not None and (args.task or args.target or args.wheels or args.quickstart):
        raise UserError(
            "--task, --target, --wheels and --quickstart choose the quickstart's data: leave them out with --data"
        )
    options = ScalingOptions(
        args.arch,
        args.updates,
        args.epsilon,
        args.beta,
        args.seeds,
        args.output,
        args.train_flags,
    )
    size = model_size(training_options(options.arch, options.train_flags))
    check_beta(options.beta)
    if args.data is None:
        data = quickstart_data(args.quickstart or Path("quickstart"), args.arch, args.task, args.target, args.wheels)
    else:
        data = preprocessed_data(args.data)
    measure(options, data, size)
    return 0
