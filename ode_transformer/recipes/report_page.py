"""The page that quickstart and studies end with, written by ``ode-transformer report``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ode_transformer import __version__
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest
from ode_transformer.support.jobs import Jobs


def write_report(folder: Path, inputs: Sequence[Path], threads: int | None = None) -> None:
    """Write ``report.html`` of a run or a study unless it is current, and print where it lies.

    :param folder: of the run or of the study's results
    :param inputs: files that decide what the page shows
    :param threads: as for ``commands.run``
    """
    page = folder / "report.html"
    command: list[str | Path] = ["ode-transformer", "report", folder, "--output", page]
    jobs = Jobs(folder, report=lambda line: None)
    measure = partial(commands.run, command, folder / "report.log", threads=threads)
    try:
        jobs.run("report", [__version__, content_digest(inputs)], page, measure)
    except UserError as error:  # the page is an addition: all results are there without it
        print(f"report: left out ({error})")
    else:
        print(f"report, for a browser: {page}")
