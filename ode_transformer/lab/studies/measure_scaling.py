"""``ode-transformer analyse scaling``: a larger architecture, by one step along two gradients (``studies.scaling``).

Without ``--gradients`` they are measured:

    L'_l = (L(l + ε, w) - L(l, w)) / ε      L'_w = (L(l, w + ε) - L(l, w)) / ε      Reformer (Li et al. 2020), Eq. 10

L is what Eq. 9 maximises on the validation set; the paper chooses cross-entropy. Here L = -(mean of -log p of all
target tokens, end symbols included, without label smoothing, in nats), for the checkpoint of a training that has the
best validation loss. l + ε means ε more layers in each stack, w + ε an inner size larger by ε times the width. Each
seed takes three short trainings: the base architecture, the deeper and the wider one.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import cross_entropy, predict_tokens
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.lab.recipes import training, workflow
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.recipe import load_recipe
from ode_transformer.lab.recipes.training import TrainingProgress
from ode_transformer.lab.studies import scaling
from ode_transformer.support import commands
from ode_transformer.support.files import file_stamp, lock_directory, read_json, write_files
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.tables import markdown_table


@dataclass(frozen=True)
class TrainingData:
    """Data of the trainings, and the flags of fairseq-train that belong to them."""

    folder: Path
    digest: str
    flags: dict[str, Any]


def training_data(args: argparse.Namespace) -> TrainingData:
    """Return the folder of ``--data``, or the data and training flags of ``--recipe``, prepared where missing."""
    if args.data is not None:
        files = [[file.name, *file_stamp(file)] for file in sorted(args.data.iterdir())]
        return TrainingData(args.data, Jobs(args.data).digest_of(files), {})
    options = RunOptions(output=args.experiments, arch=args.arch, raw=args.raw)
    recipe = load_recipe(args.recipe, options)
    data = workflow.recipe_data(recipe, args.recipe, options)
    workflow.prepare(data, options)
    return TrainingData(data.binary, data.prepared_jobs().digest, data.language_flags() | recipe.train)


def validation_loss(checkpoint: Path, data: Path) -> float:
    """Return the cross-entropy of a checkpoint on the validation set, in nats per token.

    fairseq's log has three decimals, too few for a difference of losses.
    """
    trained = load_trained_model(checkpoint, data)
    model, valid = trained.model, Split(trained, data, "valid")
    batches = map(valid.sample, valid.batches(None, 4000))
    return cross_entropy(
        predict_tokens(model.cuda() if torch.cuda.is_available() else model, batches, trained.target_dictionary.pad())
    )


def train_and_measure(run_folder: Path, data: TrainingData, flags: Sequence[str], updates: int) -> float:
    """Train for so many updates, or resume, unless it is done; return the validation loss of the best checkpoint."""
    checkpoints, result = run_folder / "checkpoints", run_folder / "loss.json"
    command: list[str | Path] = ["fairseq-train", data.folder, *flags, "--save-dir", checkpoints]
    jobs = Jobs(run_folder, data.digest)

    def train_and_evaluate() -> None:
        with TrainingProgress(last_update=updates) as progress:
            training.train_or_resume(command, run_folder, jobs.digest_of(flags), updates, progress)
        loss = validation_loss(checkpoints / "checkpoint_best.pt", data.folder)
        write_files(run_folder, {result.name: json.dumps({"validation_loss": loss})}, result.name)

    with lock_directory(run_folder, "training"):
        jobs.run(run_folder.name, flags, result, train_and_evaluate)
    return float(read_json(result)["validation_loss"])


def gradient_table(losses: dict[int, dict[str, float]], epsilon: int) -> tuple[str, tuple[float, float]]:
    """Return losses and gradients (Eq. 10) as a Markdown table, and the means of both gradients over the seeds.

    :param losses: seed -> name of the model -> validation loss, in the order base, deeper, wider
    """
    titles = ["seed", *(f"loss, {name}" for name in next(iter(losses.values()))), "L'_l", "L'_w"]
    rows, gradients = [], []
    for seed, by_model in losses.items():
        base, *larger = by_model.values()
        gradients.append(tuple((base - loss) / epsilon for loss in larger))
        rows.append([str(seed), *(f"{value:.5f}" for value in (base, *larger, *gradients[-1]))])
    by_depth, by_width = zip(*gradients, strict=True)
    if len(losses) > 1:
        means = [f"{mean(g):.5f} ± {stdev(g) / math.sqrt(len(g)):.5f}" for g in (by_depth, by_width)]
        rows.append(["mean ± standard error", "", "", "", *means])
    return markdown_table(titles, rows, "r" * len(titles)), (mean(by_depth), mean(by_width))


def measure(args: argparse.Namespace, data: TrainingData) -> None:
    """Run all trainings, skipping finished ones; print and write the table, and print the solution."""
    train_options = scaling.training_options(args.arch, [*commands.flags(data.flags), *args.train_flags])
    size = scaling.model_size(train_options)
    updates = train_options.max_update or args.updates
    run_name = training.run_name(args.arch, ["updates", str(args.updates), *args.train_flags])
    folder = args.output / data.folder.resolve().parent.name / run_name
    steps = {
        "base": scaling.ScalingStep(1, 0, 0),
        f"l+{args.epsilon}": scaling.ScalingStep(1, args.epsilon, 0),
        f"w+{args.epsilon}": scaling.ScalingStep(1, 0, args.epsilon),
    }
    losses: dict[int, dict[str, float]] = {}
    for seed in args.seeds:
        losses[seed] = {}
        for name, step in steps.items():
            flags = training_flags(args, data, size.enlarged(step), seed)
            losses[seed][name] = train_and_measure(folder / f"{name}-seed{seed}", data, flags, updates)
    table, gradients = gradient_table(losses, args.epsilon)
    print(f"\n== {folder}: validation loss in nats per token after {updates} updates\n{table}\n")
    numbers = {"epsilon": args.epsilon, "beta": args.beta, "losses": losses, "gradients": gradients}
    texts = {"scaling.md": table + "\n", "scaling.json": json.dumps(numbers, indent=1) + "\n"}
    write_files(folder, texts, "scaling.md")
    lines = scaling.architecture_lines(train_options, gradients, args.beta)
    print("\n".join([f"gradients {gradients[0]:.5f} {gradients[1]:.5f}, beta {args.beta:g}", *lines]))


def training_flags(args: argparse.Namespace, data: TrainingData, size: scaling.ModelSize, seed: int) -> list[str]:
    """Return the flags of one training; where fairseq-train reads a flag twice, the later one counts."""
    flags = {
        "user-dir": commands.USER_DIR.get(),
        "arch": args.arch,
        "distributed-world-size": 1,  # with fairseq's, every GPU of the machine adds to the batch
        "cpu": not torch.cuda.is_available(),
        **training.RESUMABLE_FLAGS,
        "no-epoch-checkpoints": True,
        "keep-interval-updates": 1,
        "log-format": "json",
        "log-interval": 25,
        **data.flags,
        "max-update": args.updates,
        "save-interval-updates": max(1, args.updates // 10),
    }
    return [*commands.flags(flags), *args.train_flags, *commands.flags({**size.options(), "seed": seed})]


def run(args: argparse.Namespace) -> None:
    """Print the larger architecture, or the solution of Eq. 11 alone; measure the gradients if none are given."""
    if args.arch is None:
        size = scaling.ModelSize({"decoder": scaling.StackSize(args.layers)}, 1, args.ffn_ratio)
        print("\n".join(scaling.solution_lines(size, tuple(args.gradients), args.beta)))
    elif args.gradients is None:
        measure(args, training_data(args))
    else:
        options = scaling.training_options(args.arch, args.train_flags)
        print("\n".join(scaling.architecture_lines(options, tuple(args.gradients), args.beta, args.dictionaries)))
