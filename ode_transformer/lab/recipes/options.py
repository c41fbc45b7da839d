"""Options of a run, and the recipes of ``configs/`` by name: quick to import, without fairseq."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ode_transformer.support.arguments import non_negative_int, positive_float, positive_int, whole_numbers
from ode_transformer.support.commands import available_processors
from ode_transformer.support.yaml_file import CONFIGS, find_config

OTHER_FILES = ("sources", "glue", "gpu_speed")  # files of other kinds in the folder of the recipes


def recipe_names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in OTHER_FILES)


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given its name in ``configs/`` or the path of a .yaml file."""
    return find_config(name, CONFIGS, recipe_names(), "recipe")


def _option(help_text: str, default: Any = None, **settings: Any) -> Any:
    """Declare a field with its flag: the text of ``--help``, the default, and settings of argparse."""
    if default is False:
        settings["action"] = "store_true"
    return field(default=default, metadata={"help": help_text, **settings})


FOLDER: dict[str, Any] = {"type": Path, "metavar": "DIR"}
NAME: dict[str, Any] = {"metavar": "NAME"}
COUNT: dict[str, Any] = {"type": positive_int, "metavar": "N"}
NUMBER: dict[str, Any] = {"type": non_negative_int, "metavar": "N"}


@dataclass(frozen=True)
class RunOptions:
    """Options that the commands of recipes and studies share; each command has the flags that concern it.

    :param seeds: one training for each; a seed of None is the recipe's
    :param train_flags: words for fairseq-train, which override everything else
    """

    output: Path = _option("folder for everything (default: %(default)s)", Path("experiments"), **FOLDER)
    dry_run: bool = _option("print the commands and run none", False)
    sources: bool = _option("with --dry-run: print where each flag of fairseq-train comes from", False)
    raw: Path | None = _option("folder with the raw files, instead of a download (docs/data.md lists them)", **FOLDER)
    workers: int = _option(
        "processes for the slow parts of preparation (default: all cores)", available_processors(), **COUNT
    )
    arch: str | None = _option("registered architecture (default: the recipe's)", **NAME)
    variant: str | None = _option("variant of the recipe, where a paper and its code differ", **NAME)
    seeds: tuple[int | None, ...] = _option(
        "a training for each seed; the mean and deviation of their scores are printed",
        (None,),
        **{"type": whole_numbers, "metavar": "S,S,..."},
    )
    minutes: float | None = _option(
        "stop the training after M minutes, those of earlier runs included; with more it resumes",
        **{"type": positive_float, "metavar": "M"},
    )
    average: int | None = _option("average the last N checkpoints, instead of the recipe's", **COUNT)
    gpus: int | None = _option("number of GPUs of this machine (default: all; 0: the CPU)", **NUMBER)
    processes: int = _option(
        "with --gpus 0: N processes of the CPU train together (default: 1, which uses all cores)", 1, **COUNT
    )
    precision: str | None = _option(
        "training precision (default: fp16 if the GPUs support it)", choices=("fp32", "fp16", "bf16")
    )
    max_tokens: int | None = _option(
        "tokens that one GPU takes at a time, if the recipe's number does not fit; tokens of an update stay", **COUNT
    )
    nodes: int = _option(
        "machines that train together, each started by hand with its --node-rank and one --output that all of them see",
        1,
        **COUNT,
    )
    node_rank: int = _option("number of this machine among them, from 0", 0, **NUMBER)
    master: str | None = _option("address of the first machine", metavar="HOST:PORT")
    model_only: bool = _option("delete the checkpoints of a run once it is evaluated; its averaged model stays", False)
    train_flags: tuple[str, ...] = ()
