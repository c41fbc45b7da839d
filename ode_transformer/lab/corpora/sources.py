"""The source list, ``configs/sources.yaml``: every raw file that recipes are made from."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel, StringConstraints

from ode_transformer.support.yaml_file import CONFIGS, YamlSection, read_yaml

SOURCES_FILE = CONFIGS / "sources.yaml"

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+/\S+$")]


class Copy(YamlSection):
    """A copy of a raw file within another one.

    :param source: name of the archive
    :param member: of the archive
    """

    source: str
    member: str


class Source(YamlSection):
    """One raw file: published at an address, or sent by its owner on request.

    :param file: path in the folder of raw files
    :param urls: addresses, the publisher's first, then those of copies
    :param copies: archives that have the same file, tried if no address gives it
    :param single_host: why no second host has the file
    :param sha256: published checksum, as ``md5``; without one, the first download's is recorded
    :param checksum_from: who published the checksum
    :param bytes: published size
    :param licence: permitted use, or the page that states it
    :param obtain: for licensed data without an address: how to request them
    """

    file: Annotated[str, StringConstraints(pattern=r"^[^./][^/]*(/[^./][^/]*)*$")]  # no part begins with a full stop
    urls: list[Url] = []
    copies: list[Copy] = []
    single_host: str | None = None
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    md5: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    checksum_from: str | None = None
    bytes: Annotated[int, Field(gt=0)] | None = None
    licence: str
    obtain: str | None = None

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Algorithm and value of the published checksum."""
        if self.sha256:
            return "sha256", self.sha256
        return ("md5", self.md5) if self.md5 else None


# A raw file that is published, or the path of a user's own file.
AnySource = Source | Path


def read_sources(path: Path = SOURCES_FILE) -> dict[str, Source]:
    """Return the sources of a list by name."""
    return read_yaml(path, RootModel[dict[str, Source]]).root
