"""``ode-transformer analyse truncation-error``: accuracy of the steps of trained models as solutions of y' = F(y).

:mod:`ode_transformer.lab.analysis.depth.block_flows` measures; this module reads the command line, prints and plots.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from ode_transformer.lab.analysis import systems
from ode_transformer.lab.analysis.depth.block_flows import TRAINED, BlockErrors, Method, block_errors
from ode_transformer.lab.analysis.plots import LINE_STYLES, new_figure, plain_label, save_figure
from ode_transformer.numerics import get_tableau
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# An error below this multiple of the solution's own error bound cannot be distinguished from the solution's error.
_DISTINGUISHABLE = 10


def relative_error(block: BlockErrors, method: Method) -> float | None:
    """Return the mean relative error; None where it is too small to be distinguished from the solution's own."""
    error, _ = block.mean(method)
    return error if error >= _DISTINGUISHABLE * block.reference_bound else None


def measured_order(block: BlockErrors, scheme: str, counts: Sequence[int]) -> float | None:
    """Return the order of the error in the step size between the two largest step counts; None if it is unknown."""
    if len(counts) < 2:
        return None
    coarse, fine = (relative_error(block, Method(scheme, count)) for count in counts[-2:])
    return math.log(coarse / fine) / math.log(counts[-1] / counts[-2]) if coarse and fine else None


def table(block: BlockErrors, names: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Return the lines of one block: relative errors by scheme and number of steps."""

    def entry(method: Method) -> str:
        error = relative_error(block, method)
        return f"{error:.2e}" if error is not None else f"<{_DISTINGUISHABLE * bound:.0e}" if bound < math.inf else "?"

    bound = block.reference_bound
    accuracy = f"the solution is known to {bound:.0e} after {block.steps} steps"
    if bound == math.inf:
        accuracy = f"the solution is not known: {block.steps} steps do not settle it, see --max-steps and --tolerance"
    width = max(map(len, (*names, TRAINED)))
    lines = [
        f"{block.block}: {block.positions} positions, each moved by {block.distance / block.positions:.3g}; {accuracy}",
        f"  {'steps':{width}}" + "".join(f"{count:>10}" for count in counts) + ("     order" if counts[1:] else ""),
    ]
    for name in names:
        order = measured_order(block, name, counts)
        order_entry = "" if not counts[1:] else f"{order:10.2f}" if order is not None else f"{'—':>10}"
        entries = "".join(f"{entry(Method(name, count)):>10}" for count in counts)
        lines.append(f"  {name:{width}}{entries}{order_entry}")
    for method in block.sums:
        if method.scheme == TRAINED:
            note = f" (steps: {method.steps})" if method.steps > 1 else ""
            lines.append(f"  {TRAINED:{width}}{entry(method):>10}{note}")
    return lines


def draw_errors(
    axes: Axes, stack: str, runs: Mapping[str, Sequence[BlockErrors]], names: Sequence[str], count: int
) -> None:
    """Draw the relative error of each block of a stack after ``count`` steps; see :func:`plot`."""
    for colour, (run, run_blocks) in enumerate(runs.items()):
        blocks = [block for block in run_blocks if block.stack == stack]
        numbers, prefix = range(1, len(blocks) + 1), f"{run}: " if run else ""
        for scheme, style in zip(names, cycle(LINE_STYLES), strict=False):
            errors = [block.mean(Method(scheme, count))[0] for block in blocks]
            label = plain_label(prefix + scheme)
            axes.plot(numbers, errors, color=f"C{colour}", linestyle=style, marker=".", label=label)
        errors = [block.mean(method)[0] for block in blocks for method in block.sums if method.scheme == TRAINED]
        label = plain_label(prefix + TRAINED)
        axes.plot(numbers, errors, "x", color=f"C{colour}", markersize=9, label=label)
    depth = max(sum(block.stack == stack for block in blocks) for blocks in runs.values())
    axes.set(yscale="log", xlabel="block", xlim=(0.5, depth + 0.5))
    axes.locator_params(axis="x", integer=True, min_n_ticks=1)
    axes.grid(alpha=0.3)


def plot(runs: Mapping[str, Sequence[BlockErrors]], names: Sequence[str], count: int, path: Path) -> None:
    """Plot the relative error of each block after ``count`` steps, with a panel for each stack.

    A colour stands for a model, a line style for a scheme, a cross for a model's own step.
    """
    stacks = systems.stacks_among([block.stack for block in blocks] for blocks in runs.values())
    figure = new_figure(6 * len(stacks), 4)
    panels = figure.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
    for axes, stack in zip(panels, stacks, strict=True):
        draw_errors(axes, stack, runs, names, count)
        axes.set_title(stack)
    panels[0].set_ylabel(f"relative error, {count} step" + "s" * (count > 1))
    panels[-1].legend(fontsize="x-small")
    save_figure(figure, path)


def run(args: argparse.Namespace) -> int:
    """Print, for each checkpoint and block, the relative errors of the schemes."""
    tableaus = {name: get_tableau(name) for name in args.schemes.split(",")}
    names, accuracy = tuple(tableaus), (args.tolerance, args.max_steps)
    sizes = ["relative_error", "absolute_error", "moved", "reference_steps", "reference_relative_error_bound"]
    rows: list[list[object]] = [["model", "block", "positions", "scheme", "steps", *sizes]]
    runs = {}
    for system in systems.measured_models(args):
        blocks = block_errors(system.model.double(), system.samples, tableaus, args.steps, *accuracy)
        for block in blocks:
            print(f"{system.name}, " + "\n".join(table(block, names, args.steps)), flush=True)
            reference = [block.distance / block.positions, block.steps, block.reference_bound]
            for method in block.sums:
                rows.append([system.name, block.block, block.positions, *method, *block.mean(method), *reference])
        runs[system.name] = blocks
    if args.csv is not None:
        write_text(args.csv, csv_text(rows))
    if args.output is not None:
        plot(runs, names, args.steps[0], args.output)
    return 0
