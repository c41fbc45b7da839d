"""Options of a run, and the recipes of ``configs/`` by name: quick to import, without pydantic and fairseq."""

from dataclasses import dataclass
from pathlib import Path

from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import CONFIGS, find_config

PRECISIONS = ("fp32", "fp16", "bf16")
OTHER_FILES = ("sources", "glue", "gpu_speed")  # files of other kinds in the folder of the recipes


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in OTHER_FILES)


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given its name in ``configs/`` or the path of a .yaml file."""
    return find_config(name, CONFIGS, recipe_names(), "recipe")


def require_gpus(options: "RunOptions", installed: int) -> None:
    """Refuse more GPUs than a machine has.

    :raises UserError: the user asks for more
    """
    if (options.gpus or 0) > installed and not options.dry_run:
        raise UserError(f"--gpus {options.gpus}: this machine has {installed}")


@dataclass(frozen=True)
class RunOptions:
    """Options that the commands of recipes and studies share; each command reads those that concern it.

    :param output: folder for everything
    :param dry_run: print the commands and run none
    :param sources: in a dry run, print where each flag of fairseq-train comes from
    :param raw: folder with the raw files; None to download them
    :param workers: processes for the slow parts of preparation
    :param arch: registered architecture; None for the recipe's, in the recipe's size
    :param seeds: one training for each; a seed of None is the recipe's
    :param minutes: limit of the training time
    :param average: number of checkpoints to average instead of the recipe's
    :param gpus: of this machine; None for all, 0 for the CPU
    :param processes: processes that train together on the CPU
    :param precision: one of ``PRECISIONS``; None for the fastest that the GPUs support
    :param max_tokens: tokens that one process takes at a time, instead of the recipe's
    :param nodes: machines that train together
    :param node_rank: number of this machine among them, from 0
    :param master: HOST:PORT of the first machine
    :param model_only: delete the checkpoints of a run once it is evaluated; its averaged model stays
    :param train_flags: words for fairseq-train, which override everything else
    """

    output: Path = Path("experiments")
    dry_run: bool = False
    sources: bool = False
    raw: Path | None = None
    workers: int = 1
    arch: str | None = None
    variant: str | None = None
    seeds: tuple[int | None, ...] = (None,)
    minutes: float | None = None
    average: int | None = None
    gpus: int | None = None
    processes: int = 1
    precision: str | None = None
    max_tokens: int | None = None
    nodes: int = 1
    node_rank: int = 0
    master: str | None = None
    model_only: bool = False
    train_flags: tuple[str, ...] = ()
