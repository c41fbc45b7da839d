"""Figures of matplotlib as SVG within a page, in the page's colours, light or dark.

A figure is drawn in colours that stand for the variables of ``templates/style.css``; the text of the SVG then names the
variables instead. Its letters stay text, in the font of the page.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ode_transformer.lab.analysis.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LABEL = 48  # letters of a line in a legend
WIDTH, HEIGHT = 4.4, 3.2  # inches: at 400 pixels, letters keep most of their size
SERIES = tuple(f"#01{number:02x}01" for number in range(6))  # stand for --series-0 …
INK, LINE = "#010102", "#010103"
RAMP = "ode-transformer-ramp"  # of matplotlib's colour maps; its colours are #02XX02
_LEVELS = 256
_RAMP_COLOUR = re.compile(r"#02([0-9a-f]{2})02")
_CLIP_NUMBER = itertools.count(1)  # names within a page are unique


@contextmanager
def page_style() -> Iterator[None]:
    """Let matplotlib draw in colours that :func:`inline_svg` replaces."""
    import matplotlib
    from cycler import cycler
    from matplotlib.colors import ListedColormap

    if RAMP not in matplotlib.colormaps:
        colours = [f"#02{level:02x}02" for level in range(_LEVELS)]
        matplotlib.colormaps.register(ListedColormap(colours, RAMP))
    edges = {name: INK for name in ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")}
    settings: dict[Any, Any] = {
        **edges,
        "svg.fonttype": "none",
        "svg.hashsalt": "ode-transformer",  # the same figure has the same text
        "font.size": 10,
        "axes.edgecolor": LINE,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=SERIES),
        "figure.facecolor": "none",
        "grid.color": LINE,
        "image.cmap": RAMP,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "savefig.facecolor": "none",
    }
    with matplotlib.rc_context(settings):
        yield


class Drawing(NamedTuple):
    """A figure of the page."""

    title: str
    svg: str


def drawing(
    title: str, description: str, draw: Callable[..., None], *arguments: Any, height: float = HEIGHT
) -> Drawing:
    """Return a figure of one panel.

    :param description: text for readers who do not see the figure
    :param draw: called with the panel and the arguments
    :raises UserError: matplotlib is not installed, or ``draw`` raises it
    """
    figure = new_figure(WIDTH, height)  # says what to install where matplotlib is missing
    from matplotlib.ticker import LogLocator

    with page_style():
        figure.set_facecolor("none")
        axes = figure.subplots()
        draw(axes, *arguments)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":  # numbers as plain decimals, with 2 and 5 between the powers of 10
                axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("")
        legend_below(figure, axes)
        return Drawing(title, inline_svg(figure, description))


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of a panel below it; a single curve that the title explains has none."""
    if (legend := axes.get_legend()) is not None:
        legend.remove()
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        labels = [x if len(x) <= MAX_LABEL else f"{x[: MAX_LABEL - 15]}…{x[-14:]}" for x in labels]
        longest = max(map(len, labels))
        columns = 1 if longest > 24 else 2 if longest > 14 else 3
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def inline_svg(figure: Figure, description: str) -> str:
    """Return a figure drawn within :func:`page_style` as an SVG element."""
    from markupsafe import escape

    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r"<svg \1>", text, count=1, flags=re.DOTALL)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
    number = next(_CLIP_NUMBER)
    text = re.sub(r'id="([^"]+)"', rf'id="f{number}-\1"', text)
    text = re.sub(r'(href="#|url\(#)([^")]+)', rf"\1f{number}-\2", text)
    for index, colour in enumerate(SERIES):
        text = text.replace(colour, f"var(--series-{index})")
    text = text.replace(INK, "var(--ink)").replace(LINE, "var(--line)")

    def ramp(match: re.Match[str]) -> str:
        fraction = int(match[1], 16) / (_LEVELS - 1)
        return f"color-mix(in oklab, var(--ramp-start), var(--ramp-end) {fraction:.0%})"

    return _RAMP_COLOUR.sub(ramp, text).strip()
