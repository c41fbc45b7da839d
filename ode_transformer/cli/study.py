"""``ode-transformer study``: the systems of a study, trained, evaluated and compared."""

import argparse

from ode_transformer.cli.run_arguments import MACHINE, PREPARATION, RESULTS, RESUMES, add, run_options
from ode_transformer.lab.studies import find_study, study_names
from ode_transformer.support.arguments import whole_numbers
from ode_transformer.support.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer study``."""
    parser.add_argument(
        "study", metavar="STUDY", help="a question of configs/studies/, or the path of a .yaml file of your own"
    )
    parser.add_argument(
        "--setting",
        metavar="SETTING",
        help="one of the study's data sets (default: the paper's; most have g2p or cpu, minutes a run on one core)",
    )
    add(parser, "--seeds", default=(), help="some of the study's seeds (default: all)")
    add(parser, "--systems")
    parser.add_argument(
        "--values",
        type=whole_numbers,
        metavar="N,...",
        help="only these values of the quantity that the study varies, such as encoder layers",
    )
    parser.add_argument("--table", action="store_true", help="train nothing: write the results of the existing runs")
    add(parser, *PREPARATION, *MACHINE, "--max-tokens", *RESULTS, "--sources")
    parser.epilog = (
        f"Only missing runs are trained and evaluated; trainings of `ode-transformer train` with the same flags count, "
        f"and those of other studies. results.md, .csv and .png go to the folder studies of --output. "
        f"{RESUMES} Several processes can share a study: each with its own --seeds. "
        f"Studies: {', '.join(study_names())}."
    )


def run(args: argparse.Namespace) -> int:
    """Run a study and write its results."""
    if args.table and (args.systems or args.values):
        raise UserError("--table takes all existing runs: leave out --systems and --values")
    options, command = run_options(args), ["ode-transformer", *args.words]
    from ode_transformer.lab.studies.study import read_study

    study = read_study(find_study(args.study))
    setting = args.setting or study.first_setting
    study.check_setting(setting)  # before fairseq is imported
    from ode_transformer.lab.studies.run_study import run_study

    run_study(args.study, setting, args.systems or ["*"], args.values, options, args.table, command)
    return 0
