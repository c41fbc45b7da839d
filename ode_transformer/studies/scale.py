"""Measures the two gradients of model scaling by three short trainings, and solves for the larger architecture.

    bash scripts/scale.sh --arch NAME [--updates N] [--seeds 1,2,3] [-- FLAGS OF fairseq-train]

    L'_l = (L(l + ε, w) - L(l, w)) / ε      L'_w = (L(l, w + ε) - L(l, w)) / ε      Reformer (Li et al. 2020), Eq. 10

L is what Eq. 9 maximises on the validation set, the paper's choice being cross-entropy: here L = -(mean of -log p of
all target tokens, end symbols included, without label smoothing, in nats), of the checkpoint of a training that has the
best validation loss. l + ε means ε more layers in each stack, w + ε an inner size larger by ε times the width.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ode_transformer.analysis import scaling
from ode_transformer.analysis.scaling import Size, Step
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import cross_entropy, teacher_forced
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.recipes import quickstart, training
from ode_transformer.recipes.machine import on_gpu
from ode_transformer.recipes.progress import progress
from ode_transformer.support import commands
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.commands import PACKAGE
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import place
from ode_transformer.support.jobs import Jobs


@dataclass(frozen=True)
class Data:
    """What the trainings read.

    :param folder: what fairseq-preprocess wrote
    :param digest: changes if the data do
    :param flags: of fairseq-train that belong to the data
    """

    folder: Path
    digest: str
    flags: dict[str, Any]


def quickstart_data(args: argparse.Namespace) -> Data:
    """The quickstart's data and its recipe of training; what is not there is made."""
    words = {"task": args.task or "text", "target": args.target, "arch": args.arch, "output": args.quickstart}
    request = quickstart.parse(commands.flags({**words, "wheels": args.wheels}))
    request.prepare()
    data = request.experiment.data
    return Data(data.binary, data.prepared().digest, data.language_flags() | request.experiment.recipe.train)


def given_data(folder: Path) -> Data:
    """A folder of the user's.

    :raises UserError: fairseq-preprocess has not written it
    """
    if not sorted(folder.glob("train.*.bin")) or not sorted(folder.glob("valid.*.bin")):
        raise UserError(f"--data {folder}: not a folder of fairseq-preprocess with a training and a validation set")
    files = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(folder.iterdir())]
    return Data(folder, Jobs(folder).digest_of(files), {})


def validation_loss(checkpoint: Path, data: Path, max_tokens: int = 4000) -> float:
    """Cross-entropy of a checkpoint on the validation set, nats per token.

    fairseq's log has three decimals, too few for a difference of losses.
    """
    model, _, task = load_trained_model(checkpoint, data)
    valid = Split(model, task, data, "valid", checkpoint)
    batches = map(valid.sample, valid.batches(None, max_tokens))
    return cross_entropy(teacher_forced(model.cuda() if on_gpu() else model, batches, task.target_dictionary.pad()))


def gradient(base: float, more: float, epsilon: int) -> float:
    """Eq. 10 from the two losses: where the larger model has the lower loss it is positive."""
    return (base - more) / epsilon


def train_and_measure(run: Path, data: Data, flags: Sequence[str], updates: int) -> float:
    """The validation loss of a training of so many updates, done, or gone on with, only if it has to be."""
    run.mkdir(parents=True, exist_ok=True)
    checkpoints, result = run / "checkpoints", run / "loss.json"
    command: list[str | Path] = ["fairseq-train", data.folder, *flags, "--save-dir", checkpoints]
    jobs = Jobs(run, data.digest)

    def make() -> None:
        training.train(command, run, checkpoints, jobs.digest_of(flags), progress, updates)
        loss = validation_loss(checkpoints / "checkpoint_best.pt", data.folder)
        place(run, {result.name: json.dumps({"validation_loss": loss})}, result.name)

    jobs.run(run.name, flags, result, make)
    return float(json.loads(result.read_text(encoding="utf-8"))["validation_loss"])


def table(losses: dict[int, dict[str, float]], epsilon: int) -> tuple[str, tuple[float, float]]:
    """Losses and gradients in Markdown, and the means of the gradients over the seeds.

    :param losses: seed -> size -> validation loss, the base's first, then the deeper and the wider one's
    """
    names = list(next(iter(losses.values())))
    rows = [f"| seed | {' | '.join(f'loss, {name}' for name in names)} | L'_l | L'_w |", "|---:" * 6 + "|"]
    gradients = []
    for seed, by_size in losses.items():
        base, *larger = by_size.values()
        gradients.append(tuple(gradient(base, loss, epsilon) for loss in larger))
        numbers = " | ".join(f"{value:.5f}" for value in (base, *larger, *gradients[-1]))
        rows.append(f"| {seed} | {numbers} |")
    by_depth, by_width = zip(*gradients, strict=True)
    if len(losses) > 1:
        means = " | ".join(f"{mean(g):.5f} ± {stdev(g) / math.sqrt(len(g)):.5f}" for g in (by_depth, by_width))
        rows.append(f"| mean ± standard error | | | | {means} |")
    return "\n".join(rows), (mean(by_depth), mean(by_width))


def study(args: argparse.Namespace, seeds: Sequence[int], extra: Sequence[str]) -> None:
    """All trainings; those that are done already are left out. Then the table and the solution."""
    size = scaling.size_of(scaling.training_options(args.arch, extra))
    scaling.solve(tuple(size.stacks.values()), size.ffn_ratio, (1.0, 1.0), args.beta)  # refuses β before any work
    data = quickstart_data(args) if args.data is None else given_data(args.data)
    options = scaling.training_options(args.arch, [*commands.flags(data.flags), *extra])
    updates = options.max_update or args.updates
    run_name = training.run_name(args.arch, ["updates", str(args.updates), *extra])
    home = args.output / data.folder.resolve().parent.name / run_name
    steps = {"base": (0, 0), f"l+{args.epsilon}": (args.epsilon, 0), f"w+{args.epsilon}": (0, args.epsilon)}
    losses: dict[int, dict[str, float]] = {}
    for seed in seeds:
        losses[seed] = {}
        for name, (layers, ffn_ratio) in steps.items():
            flags = training_flags(args, data, size.after(Step(1, layers, ffn_ratio)), seed, extra)
            losses[seed][name] = train_and_measure(home / f"{name}-seed{seed}", data, flags, updates)
    text, gradients = table(losses, args.epsilon)
    print(f"\n== {home}: validation loss in nats per token after {updates} updates\n{text}\n")
    numbers = {"epsilon": args.epsilon, "beta": args.beta, "losses": losses, "gradients": gradients}
    place(home, {"scaling.md": text + "\n", "scaling.json": json.dumps(numbers, indent=1) + "\n"}, "scaling.md")
    lines = scaling.report(size, gradients, args.beta, options)
    print("\n".join([f"gradients {gradients[0]:.5f} {gradients[1]:.5f}, beta {args.beta:g}", *lines]))


def training_flags(args: argparse.Namespace, data: Data, size: Size, seed: int, extra: Sequence[str]) -> list[str]:
    """Flags of fairseq-train; a later one overrides an earlier one."""
    options = {
        "user-dir": PACKAGE,
        "arch": args.arch,
        "distributed-world-size": 1,  # with fairseq's, every GPU of the machine adds to the batch
        "cpu": not on_gpu(),
        **training.STEADY,
        "no-epoch-checkpoints": True,
        "keep-interval-updates": 1,
        "log-format": "json",
        "log-interval": 25,
        **data.flags,
        "max-update": args.updates,
        "save-interval-updates": max(1, args.updates // 10),
    }
    return [*commands.flags(options), *extra, *commands.flags({**size.options(), "seed": seed})]


def parse_seeds(text: str) -> list[int]:
    """``1,2`` as numbers.

    :raises UserError: they are not
    """
    seeds = text.split(",")
    if not all(seed.isdecimal() for seed in seeds) or len({int(seed) for seed in seeds}) < len(seeds):
        raise UserError(f"--seeds {text}: expected different whole numbers divided by commas")
    return [int(seed) for seed in seeds]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="scale",
        description="Measures what depth and width are worth by short trainings, and solves for a larger architecture.",
        epilog="What follows -- goes to fairseq-train; with --data that is optimizer, batches and all.",
    )
    parser.add_argument("--arch", required=True, metavar="NAME", help="registered architecture, the base to scale")
    parser.add_argument("--data", type=Path, help="folder of fairseq-preprocess (default: the quickstart's data)")
    parser.add_argument("--task", choices=("text", "g2p"), help="of the quickstart (default: text)")
    parser.add_argument("--target", metavar="LANG", help="of the quickstart's text (default: de)")
    parser.add_argument("--quickstart", type=Path, default=Path("quickstart"), help="its folder (default: %(default)s)")
    parser.add_argument("--wheels", type=Path, help="folder with the wheels of its data, instead of downloading them")
    parser.add_argument("--updates", type=positive_int, default=1000, help="of each training (default: %(default)s)")
    parser.add_argument("--epsilon", type=positive_int, default=1, help="step of Eq. 10 (default: 1, the paper's)")
    parser.add_argument("--beta", type=float, default=2.0, help="how many times as many parameters (default: 2)")
    parser.add_argument("--seeds", default="1", metavar="S,S,...", help="a set of three trainings each (default: 1)")
    parser.add_argument("--output", type=Path, default=Path("scaling"), help="folder for everything (default: scaling)")
    own, extra = commands.divide_words(argv)
    args = parser.parse_args(own)

    def work() -> None:
        if args.data is not None and (args.task or args.target or args.wheels):
            raise UserError("--task, --target and --wheels are of the quickstart's data: leave them out with --data")
        study(args, parse_seeds(args.seeds), extra)

    return commands.status_of(parser.prog, work)


if __name__ == "__main__":
    sys.exit(main())
