"""HTML pages that need no network: templates of Jinja2 with one style sheet, everything escaped and inline.

A template extends ``base.html`` and fills its blocks ``title``, ``navigation`` and ``content``. Its script is the text
of files of ``templates/``: the page's policy allows exactly this text and no request for anything outside the page.

Figures of matplotlib stand in a page as SVG, in its colours, light or dark: they are drawn in colours that stand for
variables of the style sheet (``templates/figure.mplstyle``), and the text of the SVG then names the variables.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape

from ode_transformer.lab.analysis.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
FIGURE_STYLE = TEMPLATES / "figure.mplstyle"
COLOURS = {f"#01{number:02x}01": f"--series-{number}" for number in range(6)} | {
    "#010102": "--ink",
    "#010103": "--line",
}
INK = "#010102"
RAMP = "ode-transformer-ramp"  # of matplotlib's colour maps; its colours are #02XX02
MAX_LABEL = 48  # letters of a line in a legend
WIDTH, HEIGHT = 4.4, 3.2  # inches: at 400 pixels, letters keep most of their size
_CLIP_NUMBER = itertools.count(1)  # names within a page are unique
# Every text that is not marked as safe is escaped.
ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def render_page(template: str, scripts: Sequence[str] = (), connect: str = "'none'", **values: Any) -> str:
    """Return a page as HTML.

    :param template: name of a file of ``templates/``
    :param scripts: names of the page's scripts there, which become one
    :param connect: addresses that the script may send requests to, as in ``connect-src`` of a Content-Security-Policy
    """
    script = "\n".join(map(read_template, scripts))
    style, policy = read_template("style.css"), content_policy(script, connect)
    return ENVIRONMENT.get_template(template).render(style=style, script=script, policy=policy, **values)


def read_template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def content_policy(script: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy that allows one script, inline styles and pictures, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    styles = "style-src 'unsafe-inline'; img-src data:"
    return f"default-src 'none'; script-src {scripts}; {styles}; connect-src {connect}; base-uri 'none'"


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
    from matplotlib import colormaps, style
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import LogLocator

    if RAMP not in colormaps:
        colormaps.register(ListedColormap([f"#02{level:02x}02" for level in range(256)], RAMP))
    with style.context(FIGURE_STYLE):
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
    """Return a figure in the colours of ``FIGURE_STYLE`` as an SVG element."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file, canvas, layout = io.StringIO(), FigureCanvasSVG(figure), figure.get_layout_engine()
    if layout is not None:  # savefig would draw the figure a second time for its layout
        layout.execute(figure)
        figure.set_layout_engine("none")
    canvas.print_svg(file, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r"<svg \1>", text, count=1, flags=re.DOTALL)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
    number = next(_CLIP_NUMBER)
    text = re.sub(r'id="([^"]+)"', rf'id="f{number}-\1"', text)
    text = re.sub(r'(href="#|url\(#)([^")]+)', rf"\1f{number}-\2", text)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, f"var({variable})")

    def ramp(match: re.Match[str]) -> str:
        return f"color-mix(in oklab, var(--ramp-start), var(--ramp-end) {int(match[1], 16) / 255:.0%})"

    return re.sub("#02([0-9a-f]{2})02", ramp, text).strip()
