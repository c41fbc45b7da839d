"""The commands of recipes and studies: each takes its parsed arguments to the work in ``lab``.

What can be refused without fairseq is refused before it is imported, which takes seconds.
"""

import shlex
from argparse import Namespace
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError, list_numbers
from ode_transformer.support.files import PACKAGE
from ode_transformer.support.lines import SPACES, SYMBOLS, iterate_lines
from ode_transformer.support.yaml_file import read_yaml

if TYPE_CHECKING:
    from ode_transformer.lab.recipes.experiment import Experiment
    from ode_transformer.lab.recipes.preparation import RecipeData

GPU_DEVICES = ("nvidia[0-9]*", "kfd", "dxg")  # of NVIDIA, of AMD, and of Windows' Linux
GLUE = "glue"  # the argument RECIPE that means pre-training and the tasks of GLUE


def run_options(args: Namespace) -> RunOptions:
    """Return the run options among parsed arguments; those that a command does not have keep their defaults."""
    names = {field.name for field in fields(RunOptions)}
    options = RunOptions(**{name: value for name, value in vars(args).items() if name in names})
    has_gpu = any(True for pattern in GPU_DEVICES for _ in Path("/dev").glob(pattern))
    if options.gpus and not has_gpu and not options.dry_run:
        raise UserError(f"--gpus {options.gpus}: this machine has 0")
    if options.nodes > 1 and options.master is None:
        raise UserError(f"--nodes {options.nodes}: say --master HOST:PORT of the first")
    return options


def load_data(args: Namespace) -> "RecipeData":
    """Return the data of the recipe that the arguments name, with the user's architecture and variant."""
    from ode_transformer.lab.recipes.recipe import load_recipe

    options = run_options(args)
    recipe = load_recipe(args.recipe, options)
    from ode_transformer.lab.recipes.workflow import recipe_data

    return recipe_data(recipe, args.recipe, options)


def plan(args: Namespace) -> "list[Experiment]":
    """Return the experiments of the recipe that the arguments name, one for each seed."""
    data = load_data(args)
    from ode_transformer.lab.recipes.workflow import plan_experiments

    return plan_experiments(data.recipe, data, run_options(args))


def prepare(args: Namespace) -> None:
    """Prepare the data of a recipe, or check raw files."""
    if (args.recipe is None) == (args.check is None):
        raise UserError("expected either RECIPE or --check FILE ...")
    if args.check:
        print(f"{count_parallel_lines(args.check):,} lines each, as fairseq-preprocess counts them")
        return
    data = load_data(args)
    from ode_transformer.lab.recipes import workflow

    workflow.prepare(data, run_options(args))


def count_parallel_lines(paths: Sequence[Path]) -> int:
    """Return the number of lines of each file; warn of fairseq's symbols, and of spaces that subword-nmt passes over.

    :raises UserError: the numbers differ, a line is not UTF-8, or fairseq-preprocess would read it as two lines
    """
    counts, other_spaces = {}, SPACES - {" "}
    for path in paths:
        number = 0
        glued: dict[str, list[int]] = defaultdict(list)  # lines by the space that they hold
        symbols: dict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(iterate_lines(path), start=1):
            if "\r" in line:
                raise UserError(
                    f"{path}: line {number} holds a carriage return, where fairseq-preprocess begins a new line, "
                    "so that all pairs behind it are shifted; tr '\\r' ' ' replaces it"
                )
            for space in other_spaces.intersection(line):
                glued[space].append(number)
            for symbol in set(SYMBOLS.findall(line)):
                symbols[symbol].append(number)
        for space, numbers in sorted(glued.items()):
            octets = "".join(f"\\x{octet:02x}" for octet in space.encode())
            print_progress(
                f"warning: {path}: U+{ord(space):04X} in line {list_numbers(numbers)}, a space to fairseq and none to "
                f"subword-nmt, which glues the words beside it: sed -i 's/{octets}/ /g' {shlex.quote(str(path))}"
            )
        for symbol, numbers in sorted(symbols.items()):
            print_progress(
                f"warning: {path}: {symbol} in line {list_numbers(numbers)}, which fairseq reads as its symbol and not "
                f"as a word: sed -i 's|{symbol}|<unk>|g' {shlex.quote(str(path))}"
            )
        counts[path] = number
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{path} has {count:,}" for path, count in counts.items())
        raise UserError(f"sides of different length: {lengths}")
    return next(iter(counts.values()))


def train(args: Namespace) -> None:
    (experiment,) = plan(args)
    from ode_transformer.lab.recipes import run_experiment

    run_experiment.train(experiment)


def evaluate(args: Namespace) -> None:
    (experiment,) = plan(args)
    from ode_transformer.lab.recipes import run_experiment

    run_experiment.evaluate(experiment)


def reproduce(args: Namespace) -> None:
    """Prepare, train, evaluate and compare with the published results."""
    options = run_options(args)
    if args.table is not None and options.arch:
        raise UserError("--table: its systems have their own --arch")
    if args.systems and (args.table is None or args.recipe == GLUE):
        raise UserError("--systems: goes with --table of a recipe with translations or language models")
    if args.recipe == GLUE:
        reproduce_glue(args.table, options)
    elif args.table is None:
        experiments = plan(args)
        from ode_transformer.lab.recipes import workflow

        workflow.reproduce(experiments)
    else:
        from ode_transformer.lab.recipes.published import table_systems

        systems = table_systems(args.recipe, args.table, options.variant, args.systems or ["*"])
        from ode_transformer.lab.recipes.workflow import reproduce_table

        reproduce_table(args.recipe, args.table, systems, options, ["ode-transformer", *args.words])


def reproduce_glue(table: str | None, options: RunOptions) -> None:
    """Pre-train an encoder, or those of a published table, and fine-tune it on the tasks of GLUE."""
    from ode_transformer.lab.glue.tasks import CONFIG, GlueConfig
    from ode_transformer.lab.recipes.recipe import load_recipe

    config = read_yaml(CONFIG, GlueConfig)
    archs = [options.arch or config.arch] if table is None else config.systems_of(table)
    systems = [replace(options, arch=arch) for arch in archs]
    recipes = [load_recipe(config.pretraining, system) for system in systems]
    from ode_transformer.lab.glue import glue_command

    for recipe, system in zip(recipes, systems, strict=True):
        glue_command.reproduce(config, recipe, system)


def study(args: Namespace) -> None:
    """Train, evaluate and compare the systems of a study, and write its results."""
    if args.table and (given := [f"--{name}" for name in ("systems", "values") if getattr(args, name)]):
        raise UserError(f"--table takes all existing runs: leave out {' and '.join(given)}")
    from ode_transformer.lab.studies import find_study
    from ode_transformer.lab.studies.study import read_study

    file = find_study(args.study)
    chosen = read_study(file)
    setting = args.setting or chosen.first_setting
    if setting not in chosen.settings:
        raise UserError(f"--setting {setting}: the settings of this study are {', '.join(chosen.settings)}")
    rows = chosen.chosen_rows(setting, args.systems or ["*"], args.values)
    from ode_transformer.lab.studies.run_study import run_study

    run_study(file, setting, rows, run_options(args), args.table, ["ode-transformer", *args.words])


def quickstart(args: Namespace) -> None:
    from ode_transformer.lab.recipes.recipe import check_architecture

    if args.arch is not None:
        check_architecture(args.arch, "translation", f"--arch {args.arch}")
    from ode_transformer.lab.recipes.quickstart import Quickstart

    Quickstart(run_options(args), args.task, args.target, args.scheme).run()


def scaling(args: Namespace) -> None:
    if args.arch is None and None in (args.layers, args.ffn_ratio, args.gradients):
        raise UserError("say what to scale: --arch, or --layers, --ffn-ratio and --gradients")
    from ode_transformer.lab.recipes.recipe import load_recipe

    if args.arch is not None and args.data is args.gradients is None:  # else no recipe is used
        load_recipe(args.recipe, RunOptions(arch=args.arch))
    from ode_transformer.lab.studies import measure_scaling

    measure_scaling.run(args)


def user_dir(args: Namespace) -> None:
    print(PACKAGE)
