"""Figures, where matplotlib is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches; without pyplot, which would look for a display.

    :raises UserError: matplotlib is not installed
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("plots need matplotlib: pip install 'ode-transformer[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def plain_label(text: str) -> str:
    """A label for matplotlib, which sets what stands between dollar signs as a formula."""
    return text.replace("$", r"\$")
