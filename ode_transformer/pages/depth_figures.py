"""Figures of a report on the depth of trained models: norms, truncation errors, and the paths of a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ode_transformer.analysis.depth.block_flows import TRAINED
from ode_transformer.analysis.depth.depth_paths import DepthPath, Plane, principal_plane
from ode_transformer.analysis.depth.gradient_norms import draw_by_layer
from ode_transformer.analysis.depth.truncation_error import draw_errors
from ode_transformer.analysis.systems import stacks_among
from ode_transformer.pages.curve_figures import Drawing
from ode_transformer.pages.measurements import SCHEMES, Measurements
from ode_transformer.pages.svg import draw_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARGIN = 0.08  # around the points of a path, as a share of their range


def norm_figures(measured: Mapping[str, Measurements]) -> list[Drawing]:
    """Return the norms of gradients and activations by layer, a figure for each stack with a line for each system."""
    kinds = {
        "norm of the gradient of what the layer reads": {n: m.gradient_norms for n, m in measured.items()},
        "mean norm of what the layer returns": {n: m.activation_norms for n, m in measured.items()},
    }
    drawings = []
    for label, norms in kinds.items():
        for stack in stacks_among(norms.values()):
            lines = {name: of_stack[stack] for name, of_stack in norms.items() if stack in of_stack}

            def draw(axes: Axes, lines: dict[str, list[float]] = lines) -> None:
                draw_by_layer(axes, lines)
                axes.set_ylabel("norm")

            title = f"{stack}: {label}"
            drawings.append(Drawing(title.capitalize(), draw_svg(draw, f"{title}, by layer, of {', '.join(lines)}")))
    return drawings


def error_figures(measured: Mapping[str, Measurements]) -> list[Drawing]:
    """Return the truncation errors by block: a figure for each system and stack."""
    drawings = []
    for name, measurements in measured.items():
        for stack in stacks_among([[block.stack for block in measurements.errors]]):
            title = f"{name}: {stack}"

            def draw(axes: Axes, stack: str = stack, m: Measurements = measurements) -> None:
                draw_errors(axes, stack, {"": m.errors}, SCHEMES, 1)
                for number, line in enumerate(axes.get_lines()):
                    line.set_color(f"C{number}")
                axes.set_ylabel("relative error of a step")

            drawings.append(Drawing(title, draw_svg(draw, f"truncation error by block, {title}")))
    return drawings


def path_figures(name: str, paths: Mapping[str, DepthPath]) -> list[Drawing]:
    """Return the paths of a sentence through depth: a figure for each scheme, the model's own path behind it."""
    if not paths:
        return []
    points = torch.cat([torch.cat([step.points, step.end[None]]) for path in paths.values() for step in path])
    plane = principal_plane(points)
    projected = plane.project(points)
    low, high = projected.min(dim=0).values, projected.max(dim=0).values
    margin = (high - low).clamp_min(1e-6) * _MARGIN
    limits = torch.stack([low - margin, high + margin]).T.tolist()
    drawings = []
    trained = torch.cat([torch.stack([step.points[0], step.end]) for step in paths[TRAINED]])
    for scheme in (name for name in paths if name != TRAINED):

        def draw(axes: Axes, path: DepthPath = paths[scheme]) -> None:
            axes.plot(*plane.project(trained).T.tolist(), color="C4", linewidth=3, alpha=0.35, label=TRAINED)
            draw_path(axes, path, plane)
            axes.set(xlim=limits[0], ylim=limits[1])

        title = f"{name} stepped by {scheme}"
        drawings.append(Drawing(title, draw_svg(draw, f"path of a sentence through the layers of {title}", height=3.3)))
    return drawings


def draw_path(axes: Axes, path: DepthPath, plane: Plane) -> None:
    """Draw the steps of a path, each with the number of its block at its end, and the points of the stages."""
    labels = {"step": "steps", "stage": "stage points", "jump": "combination of earlier layers"}
    previous = None
    for number, step in enumerate(path, start=1):
        points, end = plane.project(step.points), plane.project(step.end[None])[0]
        start = points[0]
        if previous is not None and float((start - previous).norm()) > 1e-4:
            axes.plot(*_line(previous, start), ":", color="C4", linewidth=1, label=labels.pop("jump", None))
        for point in points[1:]:
            axes.plot(*_line(start, point), color="C1", linewidth=0.6)
        if len(points) > 1:
            style: dict[str, Any] = {"color": "C1", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}
            axes.plot(*points[1:].T.tolist(), marker="s", label=labels.pop("stage", None), **style)
        axes.plot(*_line(start, end), marker="o", markersize=5, color="C0", label=labels.pop("step", None))
        for label, point in ((0, start), (number, end)):
            if label or number == 1:
                axes.annotate(str(label), tuple(point.tolist()), (5, 4), textcoords="offset points", fontsize=9)
        previous = end
    axes.set_xlabel(f"first component ({plane.shares[0]:.0%} of the variance)")
    axes.set_ylabel(f"second ({plane.shares[1]:.0%})")
    axes.grid(alpha=0.3)


def _line(start: Tensor, end: Tensor) -> list[list[float]]:
    """Return the coordinates of a line: x of both ends, y of both ends."""
    coordinates: list[list[float]] = torch.stack([start, end]).T.tolist()
    return coordinates
