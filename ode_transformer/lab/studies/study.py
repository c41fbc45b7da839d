"""Study file format: the systems that are compared, the data sets and the seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ode_transformer.lab.recipes.recipe import Count, Flags
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import YamlSection, read_yaml

# Flags that make a model deeper. Li et al. deepen only the encoder of a translation model.
DEPTH_FLAGS = {"translation": ["encoder-layers"], "language_modeling": ["decoder-layers"]}


class Tuning(YamlSection):
    """A grid of values, of which each system gets its own best ones before the comparison.

    Every system has the same number of trials: one training of each combination, judged by its validation loss.

    :param grid: flag -> values; several flags with spaces between them take the same value
    :param loss: that judges a trial: ``last`` where the last checkpoint is decoded
    """

    grid: Annotated[dict[str, Annotated[list[int | float], Field(min_length=1)]], Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)] = 1
    loss: Literal["lowest", "last"] = "lowest"

    @property
    def candidates(self) -> dict[str, Flags]:
        """The flags of each trial, by its name in tables."""
        return {
            ", ".join(f"{flags.split()[0]} {value}" for flags, value in zip(self.grid, values, strict=True)): {
                flag: value for flags, value in zip(self.grid, values, strict=True) for flag in flags.split()
            }
            for values in product(*self.grid.values())
        }


class Setting(YamlSection):
    """A data set on which a study can be run.

    :param size: replaces ``{size}`` in names of architectures
    :param flags: of fairseq-train, for all systems; a system's own flags override them
    :param sizes: the size as flags of fairseq-train, for architectures without ``{size}`` in their names
    :param values: of the axis here, each in the position of one of the study's
    :param tuning: grid of the learning rate, or of other flags
    """

    recipe: str
    variant: str | None = None
    size: str = ""
    flags: Flags = {}
    sizes: Flags = {}
    values: Annotated[list[Count], Field(min_length=1)] | None = None
    tuning: Tuning | None = None


class Axis(YamlSection):
    """A quantity that is varied for every system.

    :param name: in tables and plots
    :param flags: of fairseq-train that take the value
    :param values: in the paper
    :param plot: horizontal axis of the plot: the values, or the parameters of the models with these values
    """

    name: str
    flags: Annotated[list[str], Field(min_length=1)]
    values: Annotated[list[Count], Field(min_length=1)]
    plot: Literal["values", "parameters"] = "values"


class StudySystem(YamlSection):
    """A system that is compared with others.

    :param name: in tables and plots
    :param arch: registered architecture; the setting replaces ``{size}``
    :param flags: of fairseq-train, where the system differs from the architecture's default
    :param depth: factor by which the number of layers is multiplied
    :param against: systems that it is compared with beside the baseline
    :param control: quantity in which it equals the systems that are compared with it: their compute or parameters
    :param only: settings where it is compared; everywhere by default
    """

    name: Annotated[str, Field(pattern=r"^[^|\n]+$")]
    arch: str
    flags: Flags = {}
    depth: Count = 1
    against: list[str] = []
    control: Literal["compute", "parameters"] | None = None
    only: list[str] | None = None


class Study(YamlSection):
    """A question and the runs that answer it.

    :param source: the paper and table that the question comes from
    :param tables: of published results, by their names in recipes, the preferred one first
    :param criterion: the rule that decides the question
    :param settings: name -> data set; the first is the paper's
    :param axis: quantity that is varied beside the systems
    :param deepens: flags that ``depth`` multiplies, instead of those of ``DEPTH_FLAGS``
    :param systems: the first is the baseline that all are compared with
    :param analyses: name -> command on the finished runs, see ``analyses``
    """

    title: str
    source: str
    tables: list[str] = []
    criterion: str | None = None
    settings: Annotated[dict[str, Setting], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    axis: Axis | None = None
    deepens: list[str] | None = None
    systems: Annotated[list[StudySystem], Field(min_length=2)]
    analyses: dict[Annotated[str, Field(pattern=r"^[\w-]+$")], str] = {}

    @model_validator(mode="after")
    def _check_names(self) -> "Study":
        names = [system.name for system in self.systems]
        for system in self.systems:
            for key, choices in (("against", names), ("only", list(self.settings))):
                if unknown := set(getattr(system, key) or ()) - set(choices):
                    raise ValueError(f"{system.name}: {key}: {unknown.pop()}; there are {', '.join(choices)}")
        return self

    @property
    def key_titles(self) -> list[str]:
        """Titles of the columns that tell the rows of a table apart."""
        return ["system", *([self.axis.name] if self.axis else [])]

    @property
    def first_setting(self) -> str:
        """The name of the paper's data set."""
        return next(iter(self.settings))

    def rows(self, setting: str) -> Iterator["Row"]:
        """Yield the systems at every value of the axis; the values are the outer loop."""
        values = self.axis and (self.settings[setting].values or self.axis.values)
        for position, value in enumerate(values or [None]):
            for system in self.systems:
                if system.only is None or setting in system.only:
                    yield Row(system, value, position)

    def chosen_rows(self, setting: str, patterns: Sequence[str], values: Sequence[int] | None) -> list["Row"]:
        """Return the systems whose names match, at some values of the axis or at all."""
        rows = [row for row in self.rows(setting) if any(fnmatchcase(row.system.name, pattern) for pattern in patterns)]
        rows = [row for row in rows if values is None or row.value in values]
        if not rows:
            existing = " | ".join(map(str, self.rows(setting)))
            raise UserError(f"--systems, --values: no row of the study at {setting} matches; it has {existing}")
        return rows


@dataclass(frozen=True)
class Row:
    """A row of the study's table: a system at a value of the axis, if there is an axis.

    :param position: of the value in the axis; at another setting the same position has another value
    """

    system: StudySystem
    value: int | None = None
    position: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Name of the system and position of the value: the same at every setting."""
        return self.system.name, self.position

    @property
    def key_texts(self) -> list[str]:
        """Name of the system, and the value if there is an axis: what stands below :attr:`Study.key_titles`."""
        return [self.system.name] if self.value is None else [self.system.name, str(self.value)]

    def arch(self, setting: Setting) -> str:
        """Return the architecture at a setting."""
        return self.system.arch.replace("{size}", setting.size)

    def __str__(self) -> str:
        return self.system.name if self.value is None else f"{self.system.name}, {self.value}"


def read_study(path: Path) -> Study:
    return read_yaml(path, Study)
