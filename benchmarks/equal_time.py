"""Models of the quickstart's size, fairseq's own ``transformer`` among them, at equal training time.

    python benchmarks/equal_time.py --tasks text     # five minutes, three seeds: about three hours
    python benchmarks/equal_time.py --cpu-clock      # on a shared machine: minutes of one thread's CPU time

Each system trains with each of its settings and the first seed; the setting with the lowest validation loss is then
trained with the other seeds. All systems have equally many settings. The test set is scored once for each seed and
never chosen by. Validation and checkpoints count as training time. Stopped at any point, the same command goes on.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.lab.analysis.training_log import read_log
from ode_transformer.lab.metrics.significance import mean_text
from ode_transformer.lab.recipes import run_experiment
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.quickstart import Quickstart
from ode_transformer.support.arguments import positive_float, whole_numbers
from ode_transformer.support.console import compact_output
from ode_transformer.support.files import write_text
from ode_transformer.support.provenance import provenance
from ode_transformer.support.tables import csv_text, markdown_table

SIZE = "--encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 --decoder-attention-heads 4"
FAIRSEQ = (  # its own optimizer and criterion; layers that are normalised first, as those of the recipe
    f"{SIZE} --encoder-normalize-before --decoder-normalize-before "
    "--optimizer adam --criterion label_smoothed_cross_entropy"
)
EULER = "ode_transformer_euler_tiny"
SYSTEMS = {  # architecture (None for the recipe's) and flags
    "RK2": ("ode_transformer_rk2_tiny", ""),
    "residual": (EULER, ""),
    "fairseq's transformer": ("transformer", FAIRSEQ + " --encoder-layers 1 --decoder-layers 3"),
    # In the decoder: a stack of one layer has no earlier velocity.
    "heavy ball": (EULER, "--decoder-ode-scheme heavy-ball --ode-normalize-step"),
    "Nesterov": (EULER, "--decoder-ode-scheme nesterov --ode-normalize-step"),
    "normalised step": (EULER, "--ode-normalize-step"),
}
SETTINGS = ("", "--lr 0.002")  # to choose from, for each system
_FIRST = ("task", "system", "setting", "seed", "updates", "minutes", "validation loss")
TITLES = (*_FIRST, "score", "value", "command", "commit")


def train_system(args: argparse.Namespace, task: str, system: str, setting: str, seed: int) -> Experiment:
    """Train a system, unless that is done."""
    arch, flags = SYSTEMS[system]
    words = (*shlex.split(flags), *shlex.split(setting), "--seed", str(seed))
    options = RunOptions(output=args.output, raw=args.wheels, arch=arch, minutes=args.minutes, train_flags=words)
    quickstart = Quickstart(options, task)
    experiment = quickstart.experiment()
    with compact_output(args.output / "commands.log"):
        quickstart.prepare(experiment)
        print(f"{task}, {system}, {setting or 'as in the recipe'}, seed {seed}")
        run_experiment.train(experiment)
    return experiment


def validation_loss(experiment: Experiment) -> float:
    """Return the last validation loss of a training, in bits for each token."""
    return [
        point.nll_loss or point.loss for point in read_log(experiment.folder / "train.log") if point.split == "valid"
    ][-1]


def record(experiment: Experiment, names: Sequence[object]) -> list[list[object]]:
    """Score a training on the test set; return a row for each score."""
    with compact_output(experiment.data.folder / "commands.log"):
        scores = run_experiment.evaluate(experiment)
    points = read_log(experiment.folder / "train.log")
    minutes = f"{max(p.minutes or 0 for p in points):.2f}"
    numbers = [max(p.updates for p in points), minutes, validation_loss(experiment)]
    command = shlex.join(map(str, experiment.train_command()))
    commit = provenance([command], False).get("commit")
    return [[*names, *numbers, name, f"{score.value:.2f}", command, commit] for name, score in scores.items()]


def summary(rows: Sequence[Sequence[object]]) -> str:
    """Return a table with the mean and deviation over seeds of each score."""
    values_by_system: dict[tuple[object, ...], list[float]] = {}
    for task, system, setting, _, _, _, _, score, value, *_ in rows:
        values_by_system.setdefault((task, score, system, setting), []).append(float(str(value)))
    lines = [[*map(str, key), mean_text(values), str(len(values))] for key, values in values_by_system.items()]
    return markdown_table(["task", "score", "system", "setting", "mean", "seeds"], lines, "llllrr")


def main(argv: Sequence[str] | None = None) -> int:
    """Train, choose, score; write ``equal_time.csv`` and ``equal_time.md``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=("text", "g2p"), default=["text", "g2p"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument(
        "--settings", nargs="+", default=SETTINGS, metavar="FLAGS", help="one word each (default: '' '--lr 0.002')"
    )
    parser.add_argument("--minutes", type=positive_float, default=5.0, help="of training (default: %(default)g)")
    parser.add_argument("--seeds", type=whole_numbers, default=(1, 2, 3), metavar="S,S,...", help="default: 1,2,3")
    parser.add_argument("--cpu-clock", action="store_true", help="minutes of CPU time of one thread")
    parser.add_argument("--output", type=Path, default=Path("runs/equal_time"), metavar="DIR")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="folder with the wheels instead of a download")
    args = parser.parse_args(argv)
    if args.cpu_clock:
        clock = str(Path(__file__).parent / "cpu_clock")
        os.environ["PYTHONPATH"] = os.pathsep.join([clock, *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    rows: list[list[object]] = []
    for task in args.tasks:
        for system in args.systems:
            losses = {
                setting: validation_loss(train_system(args, task, system, setting, args.seeds[0]))
                for setting in args.settings
            }
            chosen = min(losses, key=lambda setting: losses[setting])
            for seed in args.seeds:
                rows += record(train_system(args, task, system, chosen, seed), [task, system, chosen, seed])
                write_text(args.output / "equal_time.csv", csv_text([TITLES, *rows]))
    write_text(args.output / "equal_time.md", f"{summary(rows)}\n")
    print(summary(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
