"""Figures drawn with matplotlib, which is an optional dependency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Systems and layers stay apart without colours.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINE_STYLES = ("-", "--", ":", "-.")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, without pyplot, which would look for a display.

    :raises UserError: matplotlib is not installed
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("plots need matplotlib: pip install 'ode-transformer[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file; ``path`` is replaced only when all of it is written."""
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=120)


def plain_label(text: str) -> str:
    """Escape dollar signs, between which matplotlib would typeset a formula."""
    return text.replace("$", r"\$")
