"""Figures of a report: curves of the training, and of its layers where these were logged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ode_transformer.analysis.curves import LoggedRun, draw_panel
from ode_transformer.pages.svg import draw_svg
from ode_transformer.support.depth_log_names import GRADIENT_NORM, PREFIX
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTITIES = {
    "loss": "Loss",
    "perplexity": "Perplexity",
    "gradient-norm": "Norm of the gradient",
    "tokens-per-second": "Target tokens per second",
}
AXES = ("updates", "minutes", "operations")


@dataclass(frozen=True)
class Drawing:
    """A figure of the page.

    :param svg: the figure, as text of HTML
    """

    title: str
    svg: str


def training_figures(systems: Mapping[str, Sequence[LoggedRun]]) -> dict[str, list[Drawing]]:
    """Return the curves of all quantities by each axis; an axis that a run lacks has none."""
    groups = [list(runs) for runs in systems.values() if all(run.points for run in runs)]
    figures: dict[str, list[Drawing]] = {}
    for by in AXES if groups else ():
        for quantity, title in QUANTITIES.items():

            def draw(axes: Axes, quantity: str = quantity, by: str = by) -> None:
                draw_panel(axes, groups, quantity, by)

            description = f"{title} by {by} of {', '.join(group[0].name for group in groups)}"
            try:
                svg = draw_svg(draw, description)
            except UserError:  # a run's log lacks the quantity
                continue
            figures.setdefault(by, []).append(Drawing(title, svg))
    return figures


def logged_depth_figures(systems: Mapping[str, Sequence[LoggedRun]]) -> list[Drawing]:
    """Return the logged curves by layer: stage weights, then gradient norms, system by system."""
    drawings = []
    for name, runs in systems.items():
        for pattern, title in _patterns(runs).items():

            def draw(axes: Axes, pattern: str = pattern, runs: Sequence[LoggedRun] = runs) -> None:
                draw_panel(axes, [list(runs)], pattern, "updates")
                axes.set_ylabel("gradient norm" if pattern.endswith(GRADIENT_NORM) else "weight")
                for line in axes.get_lines():
                    _, *layer, _ = str(line.get_label()).split("/")
                    line.set_label(f"layer {' '.join(layer)}")

            svg = draw_svg(draw, f"{title} of {name} by updates")
            drawings.append(Drawing(f"{name}: {title}", svg))
    return drawings


def _patterns(runs: Sequence[LoggedRun]) -> dict[str, str]:
    """Return the patterns of the numbers that were logged by layer, each with a title."""
    names = dict.fromkeys(name for run in runs for point in run.points for name in point.depth)
    patterns = {}
    for name in names:
        match = re.fullmatch(rf"{PREFIX}(\w+)/.+/(weight_(\d+)|{GRADIENT_NORM})", name)
        if match:
            kind = f"weight of stage {match[3]}" if match[3] else "gradient norm of each layer's input"
            patterns[f"{PREFIX}{match[1]}/*/{match[2]}"] = f"{kind}, {match[1]}"
    return dict(sorted(patterns.items(), key=lambda item: ("norm" in item[1], item[1])))
