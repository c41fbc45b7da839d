"""Arguments of the commands of recipes, studies and GLUE: quick to import, without fairseq.

Each command has a function of its name that declares its options.
"""

import argparse
import re
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from ode_transformer.lab.recipes.options import COUNT, FOLDER, NAME, RunOptions, recipe_names
from ode_transformer.lab.studies import study_names
from ode_transformer.support.arguments import add_train_flags, flag_name, non_negative_int, positive_int, whole_numbers
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE
from ode_transformer.support.yaml_file import CONFIGS

RESUMES = "Stopped at any point, the same command continues from there."


# Settings of argparse for arguments that several commands have
ARGUMENTS: dict[str, dict[str, Any]] = {
    "recipe": {
        "metavar": "RECIPE",
        "help": f"a data set of configs/, or the path of a .yaml file: {', '.join(recipe_names())}",
    },
    "--seed": {
        **{"dest": "seeds", "default": RunOptions.seeds, "metavar": "S"},
        "type": lambda text: (non_negative_int(text),),
        "help": "seed of the training (default: the recipe's)",
    },
    "--systems": {
        **{"type": partial(re.split, r",(?!\s)"), "metavar": "PATTERN,..."},
        "help": "only the systems whose names match, such as 'RK2*'; a comma and a space belong to the name",
    },
    **{
        flag_name(option.name): {"default": option.default, **option.metadata}
        for option in fields(RunOptions)
        if option.metadata
    },
}
PREPARATION = ("--raw", "--workers")
MACHINE = ("--gpus", "--processes", "--precision")
RESULTS = ("--output", "--dry-run")


def add(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Declare arguments of ``ARGUMENTS``, with other settings of argparse where a command says so."""
    for name in names:
        parser.add_argument(name, **ARGUMENTS[name] | changes)


def prepare(parser: argparse.ArgumentParser) -> None:
    add(parser, "recipe", nargs="?")
    add(parser, "--arch", "--variant", *PREPARATION, *RESULTS)
    check = "instead of RECIPE: check that the files of a split, which fairseq-preprocess is to read, stay parallel"
    parser.add_argument("--check", type=Path, nargs="+", metavar="FILE", help=check)
    parser.epilog = f"{RESUMES} A changed raw file or recipe prepares again what depends on it."


def train(parser: argparse.ArgumentParser) -> None:
    add(parser, "recipe", "--arch", "--variant", "--seed", "--minutes", *MACHINE, "--max-tokens")
    add(parser, "--nodes", "--node-rank", "--master", *RESULTS, "--sources")
    add_train_flags(parser)
    parser.epilog = RESUMES


def evaluate(parser: argparse.ArgumentParser) -> None:
    add(parser, "recipe", "--arch", "--variant", "--seed", "--average", *MACHINE, *RESULTS)
    flags = "the flags after -- of the training: with --arch, --variant and --seed they name its folder"
    add_train_flags(parser, flags)
    parser.epilog = RESUMES


def reproduce(parser: argparse.ArgumentParser) -> None:
    add(parser, "recipe", "--arch", "--variant")
    table = (
        "every system of a published table, such as 'Xu et al. 2020, Table 1', one after the other, instead of --arch; "
        "with --variant, those of this variant"
    )
    parser.add_argument("--table", metavar="TABLE", help=table)
    add(parser, "--systems", "--model-only", "--seeds", "--minutes", *PREPARATION, "--average", *MACHINE)
    add(parser, "--max-tokens", *RESULTS, "--sources")
    add_train_flags(parser)
    parser.epilog = f"{RESUMES} RECIPE glue: pre-training and the eight tasks of GLUE."


def study(parser: argparse.ArgumentParser) -> None:
    name = "a question of configs/studies/, or the path of a .yaml file of your own"
    parser.add_argument("study", metavar="STUDY", help=name)
    setting = "one of the study's data sets (default: the paper's; most have g2p or cpu, minutes a run on one core)"
    parser.add_argument("--setting", metavar="SETTING", help=setting)
    add(parser, "--seeds", default=(), help="some of the study's seeds (default: all)")
    add(parser, "--systems")
    values = "only these values of the quantity that the study varies, such as encoder layers"
    parser.add_argument("--values", type=whole_numbers, metavar="N,...", help=values)
    parser.add_argument("--table", action="store_true", help="train nothing: write the results of the existing runs")
    add(parser, *PREPARATION, *MACHINE, "--max-tokens", *RESULTS, "--sources")
    parser.epilog = (
        f"Only missing runs are trained and evaluated; trainings of `ode-transformer train` with the same flags count, "
        f"and those of other studies. results.md, .csv and .png go to the folder studies of --output. "
        f"{RESUMES} Several processes can share a study: each with its own --seeds. "
        f"Studies: {', '.join(study_names())}."
    )


def quickstart(parser: argparse.ArgumentParser) -> None:
    task = (
        "text: English to another language, from the catalogues of translated Python packages (default); g2p: spelling "
        "to phonemes, from the CMU Pronouncing Dictionary"
    )
    parser.add_argument("--task", choices=("text", "g2p"), default="text", help=task)
    target = "target language of the text: de (default), fr, ro, pt_BR, ..."
    parser.add_argument("--target", metavar="LANG", help=target)
    add(parser, "--arch", help="registered architecture, e.g. macaron_tiny, with the layers of the default")
    scheme = (
        "scheme of the encoder, with its tableau's weights and in the size of the default: rk2, euler, rk4, heun, "
        "midpoint, kutta3, ... (default: residual layers with normalised steps)"
    )
    parser.add_argument("--scheme", **NAME, help=scheme)
    add(parser, "--minutes", help="train for M minutes, instead of a fixed number of updates")
    add(parser, "--output", default=Path("quickstart"))
    wheels = "folder with the wheels that contain the data, instead of a download"
    parser.add_argument("--wheels", dest="raw", **FOLDER, help=wheels)
    add_train_flags(parser)
    parser.epilog = f"{RESUMES} Every fairseq command is printed as it runs."


def new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the experiment; NAME.yaml is written")
    for split, use in (("train", "to train on"), ("valid", "to stop the training by"), ("test", "to score, if any")):
        text = f"text {use}: source and target, with a sentence on each line, or one file"
        parser.add_argument(f"--{split}", type=Path, nargs="+", required=split != "test", metavar="FILE", help=text)
    kind = "of the text (default: translation for two files, corrections for one .m2, else text for a language model)"
    parser.add_argument("--kind", choices=("translation", "summaries", "corrections", "text"), help=kind)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--arch", **NAME, help="registered architecture (default: one that fits the text)")
    model.add_argument("--for", dest="library", choices=("ctranslate2",), help="library that the model is exported to")
    parser.epilog = "Files may be compressed by gzip. docs/own_data.md has the rule that chooses the numbers."


def user_dir(parser: argparse.ArgumentParser) -> None:
    """Declare no argument."""


def scaling(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"{RESUMES} Every fairseq command is printed."
    add = parser.add_argument
    add("--arch", **NAME, help="registered architecture to scale")
    add("--layers", type=positive_int, metavar="L", help="joint layers of Eq. 8, instead of --arch")
    add("--ffn-ratio", type=float, metavar="W", help="inner size / width of these layers")
    gradients = ("L'_l", "L'_w")
    add("--gradients", type=float, nargs=2, metavar=gradients, help="by depth and by width (default: measured)")
    add("--beta", type=float, default=2.0, help="how many times as many parameters (default: 2)")
    sizes = "sizes of the dictionaries with their special symbols, to count with embeddings"
    add("--dictionaries", type=positive_int, nargs=2, metavar=("SOURCE", "TARGET"), help=sizes)
    add("--recipe", default="quickstart_text", help="recipe of the trainings' data and flags (default: %(default)s)")
    add("--data", **FOLDER, help="folder of fairseq-preprocess instead; all flags then stand after --")
    add("--raw", **FOLDER, help="raw files of the recipe, instead of downloading them")
    data = "folder of recipes' data (default: %(default)s)"
    add("--experiments", **FOLDER, default=RunOptions.output, help=data)
    add("--output", **FOLDER, default=Path("scaling"), help="folder for everything else (default: %(default)s)")
    add("--updates", **COUNT, default=1000, help="of each training (default: 1000)")
    epsilon = "layers, or widths of inner size, added to measure a gradient (default: 1)"
    add("--epsilon", type=positive_int, default=1, metavar="E", help=epsilon)
    seeds = "three trainings for each; gradients are averaged (default: 1)"
    add("--seeds", type=whole_numbers, default=(1,), metavar="S,S,...", help=seeds)
    add_train_flags(parser, "flags of fairseq-train, which override the recipe's")


def glue(parser: argparse.ArgumentParser) -> None:
    from ode_transformer.lab.glue.tasks import TASKS, task_names

    parser.epilog = RESUMES
    add = parser.add_argument
    model = "pre-trained model; its architecture and options are read from the checkpoint"
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help=model)
    add("--data", **FOLDER, help=f"folder with dict.txt and {SENTENCEPIECE_FILE} (default: the model's)")
    add("--raw", **FOLDER, help="folder with CoLA/train.tsv, ..., instead of downloading the tables")
    grid = "grid and flags (default: configs/glue.yaml)"
    add("--config", type=Path, default=CONFIGS / "glue.yaml", metavar="FILE", help=grid)
    tasks = "separated by commas (default: %(default)s)"
    add("--tasks", type=task_names, default=",".join(TASKS), metavar="NAME,...", help=tasks)
    output = "folder for everything, predictions for the server in its folder submission (default: glue)"
    add("--output", **FOLDER, default=Path("glue"), help=output)
    add("--dry-run", action="store_true", help="print every command of the grid and run none")
    add_train_flags(parser, "flags of fairseq-train for every run")
