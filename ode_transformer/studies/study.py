"""What a file of ``configs/studies/`` says: systems that are compared, on which data, with which seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ode_transformer.recipes.recipe import Count, Flags
from ode_transformer.support.yaml_file import CONFIGS, YamlFile, YamlSection, find_config

STUDIES = CONFIGS / "studies"

# What a model is made deeper by. Li et al. deepen the encoder of a translation model alone.
DEEPENS = {"translation": ["encoder-layers"], "language_modeling": ["decoder-layers"]}


class Place(YamlSection):
    """One of the data sets of a study.

    :param recipe: a data set of ``configs/``
    :param variant: of the recipe
    :param size: what stands for ``{size}`` in names of architectures
    :param flags: of fairseq-train, for all systems whose own flags do not say otherwise
    :param sizes: the same size as flags of fairseq-train, for architectures that have no ``{size}`` in their names
    :param values: of the axis here, each in the place of one of the study's
    """

    recipe: str
    variant: str | None = None
    size: str = ""
    flags: Flags = {}
    sizes: Flags = {}
    values: Annotated[list[Count], Field(min_length=1)] | None = None


class Axis(YamlSection):
    """What is varied for every system.

    :param name: for tables and plots
    :param flags: of fairseq-train that take the value
    :param values: those of the paper
    :param plot: what a plot has from left to right: the values, or the parameters that models of these values have
    """

    name: str
    flags: Annotated[list[str], Field(min_length=1)]
    values: Annotated[list[Count], Field(min_length=1)]
    plot: Literal["values", "parameters"] = "values"


class System(YamlSection):
    """What is compared.

    :param name: for tables and plots
    :param arch: registered architecture; ``{size}`` is filled in by the place
    :param flags: of fairseq-train, where the system is not the architecture's default
    :param depth: so many times the layers
    :param against: systems that it is compared with beside the baseline
    :param control: what it shares with the systems that are compared with it: their compute or their parameters
    :param only: places where it is compared; everywhere by default
    """

    name: Annotated[str, Field(pattern=r"^[^|\n]+$")]
    arch: str
    flags: Flags = {}
    depth: Count = 1
    against: list[str] = []
    control: Literal["compute", "parameters"] | None = None
    only: list[str] | None = None


class Study(YamlSection):
    """A question, and the runs that answer it.

    :param title: of tables
    :param source: what the question comes from
    :param tables: of the published results, as recipes call them: those that come first are preferred
    :param criterion: what will decide, where that was written down before the runs
    :param places: name -> where; the first is the paper's
    :param seeds: a training of each system for each
    :param axis: what is varied beside the systems
    :param deepens: flags that ``depth`` multiplies, instead of those of ``DEEPENS``
    :param systems: the first is the baseline that all are compared with
    """

    title: str
    source: str
    tables: list[str] = []
    criterion: str | None = None
    places: Annotated[dict[str, Place], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    axis: Axis | None = None
    deepens: list[str] | None = None
    systems: Annotated[list[System], Field(min_length=2)]

    @property
    def first(self) -> str:
        """The paper's place."""
        return next(iter(self.places))

    def cells(self, place: str) -> Iterator[Cell]:
        """What is trained at a place with each seed, the values of the axis outermost."""
        values = self.axis and (self.places[place].values or self.axis.values)
        for number, value in enumerate(values or [None]):
            for system in self.systems:
                if system.only is None or place in system.only:
                    yield Cell(system, value, number)


@dataclass(frozen=True)
class Cell:
    """A system at a value of the axis, if there is one.

    :param number: of the value: at other places the same number stands for another value
    """

    system: System
    value: int | None = None
    number: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What it is called at every place."""
        return self.system.name, self.number

    def arch(self, place: Place) -> str:
        return self.system.arch.replace("{size}", place.size)

    def flags(self, place: Place, axis: Axis | None, deeper: Sequence[str], usual: Mapping[str, Any]) -> Flags:
        """Flags of fairseq-train beside the architecture; one that says what is usual is left out.

        :param deeper: the flags that make the model deeper
        :param usual: what the flags of place, axis and depth are without being given
        """
        given = place.flags | ({} if "{size}" in self.system.arch else place.sizes)
        if axis and self.value is not None:
            given |= dict.fromkeys(axis.flags, self.value)
        if self.system.depth > 1:
            given |= {flag: self.system.depth * int(given.get(flag, usual[flag])) for flag in deeper}
        own = self.system.flags
        return own | {flag: value for flag, value in given.items() if flag not in own and value != usual[flag]}

    def __str__(self) -> str:
        return self.system.name if self.value is None else f"{self.system.name}, {self.value}"


def names() -> list[str]:
    """Of all studies."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def find(name: str) -> Path:
    """The file of a study: one of ours by its name, or the path of a file.

    :raises UserError: there is none
    """
    return find_config(name, STUDIES, names(), "study")


def read_study(path: Path) -> Study:
    """A study.

    :raises UserError: names the file, the line and the key that is unknown, missing or impossible
    """
    document = YamlFile(path)
    study = document.parse(Study)
    called = [system.name for system in study.systems]
    along = study.axis.flags if study.axis else []
    for number, system in enumerate(study.systems):
        where = ("systems", number)
        if called.index(system.name) < number:
            raise document.error((*where, "name"), f"two systems are called {system.name}")
        for key, known in (("only", list(study.places)), ("against", called)):
            if unknown := sorted(set(getattr(system, key) or ()) - set(known)):
                raise document.error((*where, key), f"{unknown[0]} is not there; there are {', '.join(known)}")
        deeper = [flag for flag in system.flags if flag.endswith("-layers") and system.depth > 1]
        if twice := [flag for flag in system.flags if flag in along] or deeper:
            raise document.error((*where, "flags", twice[0]), "the study's axis or the system's depth says this")
    for name, place in study.places.items():
        if place.values and (study.axis is None or len(place.values) > len(study.axis.values)):
            few = f"{len(study.axis.values)} values" if study.axis else "none"
            raise document.error(("places", name, "values"), f"each stands for one of the axis, which has {few}")
    if study.systems[0].control or study.systems[0].only:
        raise document.error(("systems", 0), "the baseline is compared with everywhere, and is no control")
    if len(set(study.seeds)) < len(study.seeds):
        raise document.error(("seeds",), "a seed stands twice")
    return study
