"""Figures drawn with matplotlib, which is an optional dependency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write, check_writable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ".png, .pdf, .svg"
# Systems and layers stay apart without colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINE_STYLES = ("-", "--", ":", "-.")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, without pyplot, which would look for a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("plots need matplotlib: pip install 'ode-transformer[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def check_outputs(plot: Path | None, table: Path | None = None) -> None:
    """Check, before any work is done, that a plot and a table can be written."""
    for path in filter(None, (plot, table)):
        check_writable(path)
    if plot is not None and plot.suffix[1:].lower() not in new_figure(1, 1).canvas.get_supported_filetypes():
        raise UserError(f"--output {plot}: a plot is a file with the end {FORMATS}")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix; ``path`` is replaced only when all of it is written."""
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=120)


def plain_label(text: str) -> str:
    """Escape dollar signs, between which matplotlib would typeset a formula, and a _ that would hide it in legends."""
    return text.replace("$", r"\$").replace("_", " _", text.startswith("_"))
