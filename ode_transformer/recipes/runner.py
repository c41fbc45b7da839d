"""The command lines of ``scripts/{prepare,train,evaluate,reproduce}.sh``: a recipe, an architecture, and what to do."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from ode_transformer.metrics.metric import Score
from ode_transformer.recipes import fairseq_flags, machine
from ode_transformer.recipes.architectures import architectures, ours
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.preparation import Data
from ode_transformer.recipes.progress import progress
from ode_transformer.recipes.recipe import Expected, Recipe, find, flags_of, names, read_recipe
from ode_transformer.support import commands, console
from ode_transformer.support.arguments import non_negative_int, positive_float, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import YamlFile

ACTIONS = {
    "prepare": "Makes a recipe's data: obtains the raw files, cleans and divides the text, and binarises it.",
    "train": "Trains an architecture as a recipe says, and goes on where a training was stopped.",
    "evaluate": "Averages the checkpoints of a training, decodes the test sets and scores what comes out.",
    "reproduce": "Prepares, trains and evaluates, with several seeds if asked, beside the published results.",
}


def parser_of(action: str) -> argparse.ArgumentParser:
    """Options of one of the scripts."""
    parser = argparse.ArgumentParser(
        prog=action, description=ACTIONS[action], epilog="Recipes: " + ", ".join(names()) + "; or a .yaml file."
    )
    parser.add_argument("recipe", metavar="RECIPE", help="of configs/, or the path of a .yaml file")
    add_common(parser)
    if action in ("prepare", "reproduce"):
        add_preparation(parser)
    if action == "prepare":
        return parser
    parser.epilog += " What follows -- goes to fairseq-train and overrides the recipe."
    parser.add_argument("--arch", metavar="NAME", help="registered architecture (default: the recipe's)")
    parser.add_argument("--variant", metavar="NAME", help="of the recipe, where a paper and its code differ")
    add_machine(parser)
    if action == "reproduce":
        parser.add_argument("--seeds", type=seeds, default=(None,), metavar="S,S,...", help="a training for each")
    else:
        parser.add_argument("--seed", type=non_negative_int, metavar="S", help="training seed (default: the recipe's)")
    if action in ("evaluate", "reproduce"):
        parser.add_argument("--average", type=positive_int, metavar="N", help="so many of the last checkpoints")
    if action in ("train", "reproduce"):
        parser.add_argument("--minutes", type=positive_float, metavar="M", help="stop the training after these")
        add_batch(parser)
    if action == "train":
        parser.add_argument("--nodes", type=positive_int, default=1, metavar="N", help="machines that train together")
        parser.add_argument(
            "--node-rank", type=non_negative_int, default=0, metavar="R", help="number of this machine, from 0"
        )
        parser.add_argument("--master", metavar="HOST:PORT", help="of the first of them")
    return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """Options of every script."""
    folder = "folder for everything (default: %(default)s)"
    parser.add_argument("--output", type=Path, default=Path("experiments"), metavar="DIR", help=folder)
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")


def add_preparation(parser: argparse.ArgumentParser) -> None:
    """Options of those that prepare data."""
    parser.add_argument("--raw", type=Path, metavar="DIR", help="the raw files, instead of downloading them")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=positive_int, default=cores, metavar="N", help="processes (default: all)")


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Options of those that run models."""
    parser.add_argument("--gpus", type=non_negative_int, metavar="N", help="of this machine (default: all); 0: CPU")
    parser.add_argument("--precision", choices=machine.PRECISIONS, help="default: fp16 where the GPU has cores for it")


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Options of those that train."""
    parser.add_argument(
        "--max-tokens", type=positive_int, metavar="N", help="of one GPU at a time; tokens of an update stay"
    )


def seeds(text: str) -> tuple[int, ...]:
    """``1,2,3`` as numbers."""
    try:
        numbers = tuple(non_negative_int(seed) for seed in text.split(","))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text}: expected whole numbers divided by commas") from error
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{text}: a seed stands twice")
    return numbers


def check_arch(arch: str, task: str, place: str) -> None:
    """
    :param place: where it is asked for
    :raises UserError: there is no such architecture, or it is not for the task
    """
    if arch not in architectures(task):
        raise UserError(f"{place}: no architecture for {task}; ours are {', '.join(ours(task))}")


# Flags of fairseq-train that the runner itself sets, so that no recipe does.
RUNNERS = {"user-dir", "task", "arch", "source-lang", "target-lang", "save-dir", "tensorboard-logdir", "update-freq"}
RUNNERS |= {"stop-time-hours", "distributed-world-size", "distributed-port", "cpu", "fp16", "bf16", "max-tokens-valid"}
RUNNERS |= {"path", "gen-subset", "remove-bpe", "required-batch-size-multiple"}
# Those of them that nobody may override, because evaluation counts on them.
FIXED = ("user-dir", "task", "arch", "source-lang", "target-lang", "save-dir")


def check_flags(recipe: Recipe, document: YamlFile) -> None:
    """Asks fairseq whether it knows the flags of a recipe, and whether their values can be.

    :raises UserError: names file, line and flag
    """
    suitable = list(architectures(recipe.task))
    for where, flags in flags_of(recipe).items():
        command = recipe.decoder if where[-1] == "generate" else "fairseq-train"
        archs = [recipe.arch] if len(where) == 1 else fnmatch.filter(suitable, where[-2])
        if not archs:
            raise document.error(where[:-1], f"no architecture for {recipe.task} has such a name")
        known = {"task": recipe.task, **recipe.train, **flags, "arch": archs[0]}
        parser = fairseq_flags.parser_of(command, fairseq_flags.essential(known))
        for name, value in flags.items():
            wrong = "the runner sets this flag" if name in RUNNERS else fairseq_flags.problem(parser, name, value)
            if wrong:
                raise document.error((*where, name), wrong)


def read_checked(name: str, arch: str | None = None, variant: str | None = None) -> Recipe:
    """A recipe as it is for an architecture.

    :raises UserError: there is no such recipe or architecture, or something in the recipe is wrong
    """
    recipe, document = read_recipe(find(name))
    check_arch(recipe.arch, recipe.task, f"{document.path}: arch {recipe.arch}")
    check_flags(recipe, document)
    if arch is not None:
        check_arch(arch, recipe.task, f"--arch {arch}")
    return recipe.for_arch(arch, variant)


def experiments(args: argparse.Namespace, recipe: Recipe, data: Data, extra: Sequence[str]) -> list[Experiment]:
    """An experiment for each seed.

    :raises UserError: the machine has not what is asked for, or fairseq-train refuses the flags
    """
    given = vars(args)
    found = machine.detect(
        args.gpus,
        args.precision,
        given.get("nodes", 1),
        given.get("node_rank", 0),
        given.get("master"),
        recipe.tokens_per_update,
        max(machine.FEWEST_TOKENS, int(recipe.train.get("tokens-per-sample", 0))),
        args.dry_run,
    )
    if found.nodes > 1 and "nodes" not in given:
        raise UserError(f"Slurm has started this on {found.nodes} machines: only training takes several")
    chosen = args.seeds if "seeds" in given else (args.seed,)
    made = [
        Experiment(recipe, data, found, args.variant, seed, given.get("minutes"), given.get("max_tokens"), tuple(extra))
        for seed in chosen
    ]
    check_command(made[0])
    return made


def words_of(experiment: Experiment) -> list[str]:
    """What fairseq-train is told."""
    command = list(map(str, experiment.train_command()))
    return command[command.index("fairseq-train") + 1 :]


def check_command(experiment: Experiment) -> None:
    """
    :raises UserError: fairseq-train refuses the user's flags, or they override what has to stay
    """
    words = words_of(experiment)
    given = fairseq_flags.parse("fairseq-train", words)
    if experiment.extra:
        own = fairseq_flags.parse("fairseq-train", words[: -len(experiment.extra)])
        for name in FIXED:
            if getattr(given, key := name.replace("-", "_"), None) != getattr(own, key, None):
                raise UserError(f"-- --{name} {getattr(given, key)}: cannot be overridden")


def prepare(args: argparse.Namespace, data: Data) -> None:
    downloads = args.output / "raw"
    if args.dry_run:
        print(f"raw files, from {args.raw or downloads}: {', '.join(data.recipe.corpus.sources)}")
        commands.print_command(data.preprocess_command(data.all_splits(), args.workers))
        return
    data.prepare(args.raw, downloads, args.workers)
    print(data.report())


def train(args: argparse.Namespace, experiment: Experiment) -> None:
    if args.dry_run:
        print(f"{experiment.described_batch}; {experiment.machine}")
        commands.print_command(experiment.train_command(), experiment.run / "train.log")
    else:
        experiment.train(progress)


def evaluate(args: argparse.Namespace, experiment: Experiment) -> dict[str, Score]:
    if args.dry_run:
        for command in experiment.evaluation_commands():
            commands.print_command(command)
        return {}
    return experiment.evaluate()


def grouped(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Flags with their values, whatever their order."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return {tuple(group) for group in groups}


def published(recipe: Recipe, variant: str | None, extra: Sequence[str]) -> list[Expected]:
    """The published results of a recipe's architecture with these flags of fairseq-train."""
    system = recipe.arch, variant, grouped(extra)
    return [
        entry
        for entry in recipe.expected
        if (entry.arch, entry.variant, grouped(commands.flags(entry.flags))) == system
    ]


def beside_published(
    recipe: Recipe, variant: str | None, extra: Sequence[str], scores: Mapping[int | None, Mapping[str, Score]]
) -> str:
    """Scores of each seed, their mean and deviation, and the published results, as a Markdown table.

    :param scores: seed -> name -> score
    """
    titles = list(next(iter(scores.values())))
    rows = [
        [f"seed {seed}" if seed is not None else recipe.arch, *(s[t].value for t in titles)]
        for seed, s in scores.items()
    ]
    if len(scores) > 1:
        columns = [[entry[title].value for entry in scores.values()] for title in titles]
        rows.append(["mean", *map(mean, columns)])
        rows.append(["standard deviation", *map(stdev, columns)])
    for entry in published(recipe, variant, extra):
        rows.append([f"{entry.table}: {entry.system}", *(entry.scores.get(title) for title in titles)])
    cells = [[f"{c:.2f}" if isinstance(c, float) else "" if c is None else c for c in row] for row in rows]
    return markdown_table([recipe.title, *titles], cells)


def reproduce(args: argparse.Namespace, data: Data, made: Sequence[Experiment], extra: Sequence[str]) -> None:
    prepare(args, data)
    scores = {}
    for experiment in made:
        train(args, experiment)
        scores[experiment.seed] = evaluate(args, experiment)
    if not args.dry_run:
        table = beside_published(data.recipe, args.variant, extra, scores)
        write_text(made[0].table, table + "\n")
        print(f"\n{table}")


def work(action: str, argv: Sequence[str] | None) -> None:
    """Carries out a command line.

    :raises UserError: something is wrong with it, or a step failed
    """
    own, extra = console.split_arguments(argv)
    args = parser_of(action).parse_args(own)
    if action == "prepare" and extra:
        raise UserError(f"-- {extra[0]}: preparation passes nothing on")
    recipe = read_checked(args.recipe, getattr(args, "arch", None), getattr(args, "variant", None))
    if getattr(args, "average", None):
        recipe = recipe.model_copy(update={"average": recipe.average.of_last(args.average)})
    data = Data(recipe, args.output / Path(args.recipe).stem)
    if action == "prepare":
        prepare(args, data)
        return
    made = experiments(args, recipe, data, extra)
    if action == "reproduce":
        reproduce(args, data, made, extra)
    else:
        {"train": train, "evaluate": evaluate}[action](args, made[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its first word is the action. Returns the exit status."""
    action, *words = sys.argv[1:] if argv is None else argv
    return console.exit_status(action, lambda: work(action, words))


if __name__ == "__main__":
    sys.exit(main())
