"""The catalogue of every raw file that the recipes are made from: ``configs/sources.yaml``.

``python -m ode_transformer.corpora.sources`` prints it as the table of docs/data.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, RootModel, StringConstraints, model_validator

from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import CONFIGS, YamlSection, read_yaml

CATALOGUE = CONFIGS / "sources.yaml"

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+/\S+$")]


class Source(YamlSection):
    """One file that somebody publishes, or gives to those who ask.

    :param file: its name in the folder of raw files, with ``/`` where it has a folder of its own
    :param urls: where it is, the publisher's address first, then those of copies
    :param sha256: published checksum, as ``md5``; without one, what comes first is recorded and compared later
    :param checksum_from: who published the checksum
    :param bytes: its size, where that is published
    :param licence: what one may do with it, or the page that says so
    :param obtain: for data under a licence, which have no address: how to get them
    """

    file: str
    urls: list[Url] = []
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    md5: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    checksum_from: str | None = None
    bytes: Annotated[int, Field(gt=0)] | None = None
    licence: str
    obtain: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Source:
        path = PurePosixPath(self.file)
        if path.is_absolute() or not path.name or ".." in path.parts or str(path) != self.file:
            raise ValueError(f"file {self.file!r} is not a path within the folder of raw files")
        if bool(self.urls) == bool(self.obtain):
            raise ValueError("has to have either urls or obtain")
        if self.sha256 and self.md5:
            raise ValueError("has both sha256 and md5: one of them is enough")
        if bool(self.checksum) != bool(self.checksum_from):
            raise ValueError("a checksum and checksum_from go together")
        return self

    @property
    def checksum(self) -> tuple[str, str] | None:
        """The algorithm and the published value."""
        if self.sha256:
            return "sha256", self.sha256
        return ("md5", self.md5) if self.md5 else None


class Catalogue(RootModel[dict[str, Source]]):
    """All sources by the names that recipes use."""

    @model_validator(mode="after")
    def _own_files(self) -> Catalogue:
        owners: dict[str, str] = {}
        for name, source in self.root.items():
            if (other := owners.setdefault(source.file, name)) != name:
                raise ValueError(f"{other} and {name} have the same file, {source.file}")
        return self


def read_catalogue(path: Path = CATALOGUE) -> dict[str, Source]:
    """The sources of a catalogue, by name.

    :raises UserError: names file, line and key of what is wrong
    """
    return read_yaml(path, Catalogue).root


def select(names: Iterable[str], catalogue: Mapping[str, Source]) -> dict[str, Source]:
    """The sources of these names.

    :raises UserError: there is none of that name
    """
    wanted = dict.fromkeys(names)
    if unknown := [name for name in wanted if name not in catalogue]:
        raise UserError(f"{unknown[0]}: no such source; there are {', '.join(sorted(catalogue))}")
    return {name: catalogue[name] for name in wanted}


def table(catalogue: Mapping[str, Source]) -> str:
    """The catalogue as a table in Markdown."""
    rows = ["| source | file | bytes | checksum | licence |", "|---|---|---:|---|---|"]
    for name, source in catalogue.items():
        checksum = f"{source.checksum[0]}, {source.checksum_from}" if source.checksum else "–"
        place = f"{source.file}, on request" if source.obtain else f"[{source.file}]({source.urls[0]})"
        size = f"{source.bytes:,}" if source.bytes else "–"
        rows.append(f"| `{name}` | {place} | {size} | {checksum} | {source.licence} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(read_catalogue()), end="")
