"""The files that an analysis writes: figures drawn with matplotlib, an optional dependency, and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write, check_writable, write_text
from ode_transformer.support.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


@contextmanager
def saved_panel(path: Path, width: float, height: float) -> Iterator[Axes]:
    """Yield the panel of a figure, which is written at the end of the ``with`` block."""
    figure = new_figure(width, height)
    yield figure.subplots()
    save_figure(figure, path)


def plot_stacks(
    path: Path,
    stacks: Sequence[str],
    draw: Callable[[Axes, str], None],
    ylabel: str,
    width: float,
    legend_size: str | None = None,
) -> None:
    """Write a figure with a panel for each stack, which ``draw`` fills; the panels share their vertical axis."""
    figure = new_figure(width * len(stacks), 4)
    panels = figure.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
    for axes, stack in zip(panels, stacks, strict=True):
        draw(axes, stack)
        axes.set_title(stack)
    panels[0].set_ylabel(ylabel)
    panels[-1].legend(fontsize=legend_size)
    save_figure(figure, path)


def set_depth_axes(axes: Axes, unit: str, depth: int) -> None:
    """Count layers or blocks, from 1 to ``depth``, on the horizontal axis; the vertical one is logarithmic."""
    axes.set(yscale="log", xlabel=unit, xlim=(0.5, depth + 0.5))
    axes.grid(alpha=0.3)
    axes.locator_params(axis="x", integer=True, min_n_ticks=1)


def plain_label(text: str) -> str:
    """Escape dollar signs, between which matplotlib would typeset a formula, and a _ that would hide it in legends."""
    return text.replace("$", r"\$").replace("_", " _", text.startswith("_"))


def write_csv(path: Path | None, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the first of which has the titles, if the user named a file for them."""
    if path is not None:
        write_text(path, csv_text(rows))
