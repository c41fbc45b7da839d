"""Figures of a report: curves of the training, and the depth of the trained models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ode_transformer.lab.analysis.curves import WHAT, draw_panel, logged_layers
from ode_transformer.lab.analysis.depth.block_flows import TRAINED, BlockErrors, DepthPath, principal_coordinates
from ode_transformer.lab.analysis.depth.gradient_norms import Norms, draw_by_layer
from ode_transformer.lab.analysis.depth.truncation_error import draw_errors
from ode_transformer.lab.analysis.systems import stacks_among
from ode_transformer.lab.pages.measurements import SCHEMES, Measurements
from ode_transformer.lab.pages.page import INK, Drawing, drawing
from ode_transformer.lab.pages.runs import ReportedRun, Systems
from ode_transformer.support.depth_log_names import GRADIENT_NORM, PREFIX
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = ("updates", "minutes", "operations")
_MARGIN = 0.08  # around the points of a path, as a fraction of their range


def training_figures(systems: Systems) -> dict[str, list[Drawing]]:
    """Return the curves of all quantities by each axis; an axis that a run lacks has none."""
    logged = {name: runs for name, runs in systems.items() if all(run.points for run in runs)}
    figures: dict[str, list[Drawing]] = {}
    for by in AXES if logged else ():
        for quantity in WHAT:
            with suppress(UserError):  # a run's log lacks the quantity
                title = quantity.replace("-", " ").capitalize()
                description = f"{title} by {by}, {', '.join(logged)}"
                figures.setdefault(by, []).append(drawing(title, description, draw_curves, logged, quantity, by))
    return {by: drawings for by, drawings in figures.items() if drawings}


def draw_curves(axes: Axes, systems: Systems, quantity: str, by: str) -> None:
    """Draw a panel; that of the learning rate by updates with the end of each warm-up, reached or not."""
    draw_panel(axes, systems, quantity, by)
    if (quantity, by) == ("learning-rate", "updates"):
        for warmup in dict.fromkeys(runs[0].warmup for runs in systems.values() if runs[0].warmup):
            axes.axvline(warmup, color=INK, linestyle=":", label=f"end of the warm-up, {warmup:,}")


def logged_depth_figures(systems: Systems) -> list[Drawing]:
    """Return the logged curves by layer: stage weights, then gradient norms, system by system."""

    def draw(axes: Axes, name: str, pattern: str) -> None:
        draw_panel(axes, {name: systems[name]}, pattern, "updates")
        axes.set_ylabel("gradient norm" if pattern.endswith(GRADIENT_NORM) else "weight")
        for line in axes.get_lines():
            _, *layer, _ = str(line.get_label()).split("/")
            line.set_label(f"layer {' '.join(layer)}")

    return [
        drawing(f"{name}: {title}", f"{title} of {name}", draw, name, pattern)
        for name, runs in systems.items()
        for pattern, title in _patterns(runs).items()
    ]


def _patterns(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """Return the patterns of the numbers that were logged by layer, each with a title."""
    patterns = {}
    for name in logged_layers(runs):
        match = re.fullmatch(rf"{PREFIX}(\w+)/.+/(weight_(\d+)|{GRADIENT_NORM})", name)
        if match:
            kind = f"weight of stage {match[3]}" if match[3] else "gradient norm of each layer's input"
            patterns[f"{PREFIX}{match[1]}/*/{match[2]}"] = f"{kind}, {match[1]}"
    return dict(sorted(patterns.items(), key=lambda item: ("norm" in item[1], item[1])))


def norm_figures(measured: Mapping[str, Measurements]) -> list[Drawing]:
    """Return the norms of gradients and activations by layer, a figure for each stack with a line for each system."""
    kinds = {
        "norm of the gradient of what the layer reads": {n: m.gradient_norms for n, m in measured.items()},
        "mean norm of what the layer returns": {n: m.activation_norms for n, m in measured.items()},
    }

    def draw(axes: Axes, stack: str, norms: Mapping[str, Norms]) -> None:
        draw_by_layer(axes, stack, norms)
        axes.set_ylabel("norm")

    drawings = []
    for label, norms in kinds.items():
        for stack in stacks_among(norms.values()):
            names = ", ".join(name for name, of_stack in norms.items() if stack in of_stack)
            title = f"{stack}: {label}"
            drawings.append(drawing(title.capitalize(), f"{title}, by layer, of {names}", draw, stack, norms))
    return drawings


def error_figures(measured: Mapping[str, Measurements]) -> list[Drawing]:
    """Return the truncation errors by block: a figure for each system and stack."""

    def draw(axes: Axes, stack: str, errors: Sequence[BlockErrors]) -> None:
        draw_errors(axes, stack, {"": errors}, SCHEMES, 1)
        for number, line in enumerate(axes.get_lines()):
            line.set_color(f"C{number}")
        axes.set_ylabel("relative error of a step")

    return [
        drawing(f"{name}: {stack}", f"truncation errors of {name}, {stack}", draw, stack, m.errors)
        for name, m in measured.items()
        for stack in stacks_among([[block.stack for block in m.errors]])
    ]


def path_figures(name: str, paths: Mapping[str, DepthPath]) -> list[Drawing]:
    """Return the paths of a sentence through depth: a figure for each scheme, the model's own path behind it."""
    if not paths:
        return []
    steps = [step for path in paths.values() for step in path]
    points, fractions = principal_coordinates(torch.cat(steps))
    planar_steps = iter(points.split([len(step) for step in steps]))
    planar = {scheme: [next(planar_steps) for _ in path] for scheme, path in paths.items()}
    low, high = points.min(dim=0).values, points.max(dim=0).values
    margin = (high - low).clamp_min(1e-6) * _MARGIN
    limits = torch.stack([low - margin, high + margin]).T.tolist()
    trained = torch.cat([step[[0, -1]] for step in planar.pop(TRAINED)])

    def draw(axes: Axes, path: DepthPath) -> None:
        axes.plot(*trained.T.tolist(), color="C4", linewidth=3, alpha=0.35, label=TRAINED)
        draw_path(axes, path)
        axes.set(xlim=limits[0], ylim=limits[1])
        axes.set_xlabel(f"first component ({fractions[0]:.0%} of the variance)")
        axes.set_ylabel(f"second ({fractions[1]:.0%})")
        axes.grid(alpha=0.3)

    titles = {scheme: f"{name} stepped by {scheme}" for scheme in planar}
    return [
        drawing(title, f"path of a sentence through {title}", draw, planar[scheme], height=3.3)
        for scheme, title in titles.items()
    ]


def draw_path(axes: Axes, path: DepthPath) -> None:
    """Draw the steps of a path in the plane, the end of each with its block's number, and the points of the stages."""
    labels = {"step": "steps", "stage": "stage points", "jump": "combination of earlier layers"}
    previous = path[0][0]
    axes.annotate("0", tuple(previous.tolist()), (5, 4), textcoords="offset points", fontsize=9)
    for number, (start, *stages, end) in enumerate(path, start=1):
        if float((start - previous).norm()) > 1e-4:
            axes.plot(*_line(previous, start), ":", color="C4", linewidth=1, label=labels.pop("jump", None))
        for point in stages:
            axes.plot(*_line(start, point), color="C1", linewidth=0.6)
        if stages:
            style: dict[str, Any] = {"color": "C1", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}
            axes.plot(*torch.stack(stages).T.tolist(), marker="s", label=labels.pop("stage", None), **style)
        axes.plot(*_line(start, end), marker="o", markersize=5, color="C0", label=labels.pop("step", None))
        axes.annotate(str(number), tuple(end.tolist()), (5, 4), textcoords="offset points", fontsize=9)
        previous = end


def _line(start: Tensor, end: Tensor) -> list[list[float]]:
    coordinates: list[list[float]] = torch.stack([start, end]).T.tolist()  # x of both ends, y of both ends
    return coordinates
