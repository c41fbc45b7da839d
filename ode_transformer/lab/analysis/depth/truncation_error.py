"""``ode-transformer analyse truncation-error``: accuracy of the steps of trained models as solutions of y' = F(y)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from ode_transformer.lab.analysis import systems
from ode_transformer.lab.analysis.depth.block_flows import TRAINED, BlockErrors, Method, block_errors
from ode_transformer.lab.analysis.plots import LINE_STYLES, plain_label, plot_stacks, set_depth_axes, write_csv
from ode_transformer.numerics import get_tableau, tableau_names
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# An error below this multiple of the solution's own error bound cannot be distinguished from the solution's error.
_DISTINGUISHABLE = 10


def relative_error(block: BlockErrors, method: Method) -> float | None:
    """Return the mean relative error; None where it is too small to be distinguished from the solution's own."""
    error, _ = block.errors[method]
    return error if error >= _DISTINGUISHABLE * block.bound else None


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

    bound = block.bound
    accuracy = f"the solution is known to {bound:.0e} after {block.steps} steps"
    if bound == math.inf:
        accuracy = f"the solution is not known: {block.steps} steps do not settle it, see --max-steps and --tolerance"
    width = max(map(len, (*names, TRAINED)))
    lines = [
        f"{block.block}: {block.positions} positions, each moved by {block.distance:.3g}; {accuracy}",
        f"  {'steps':{width}}" + "".join(f"{count:>10}" for count in counts) + ("     order" if counts[1:] else ""),
    ]
    for name in names:
        order = measured_order(block, name, counts)
        order_entry = "" if not counts[1:] else f"{order:10.2f}" if order is not None else f"{'—':>10}"
        entries = "".join(f"{entry(Method(name, count)):>10}" for count in counts)
        lines.append(f"  {name:{width}}{entries}{order_entry}")
    trained = block.trained
    note = f" (steps: {trained.steps})" if trained.steps > 1 else ""
    return [*lines, f"  {TRAINED:{width}}{entry(trained):>10}{note}"]


def draw_errors(
    axes: Axes, stack: str, runs: Mapping[str, Sequence[BlockErrors]], names: Sequence[str], count: int
) -> None:
    """Draw the relative error of each block of a stack after ``count`` steps.

    A colour stands for a model, a line style for a scheme, a cross for a model's own step.
    """
    depth = 0
    for colour, (run, run_blocks) in enumerate(runs.items()):
        blocks = [block for block in run_blocks if block.stack == stack]
        depth = max(depth, len(blocks))
        numbers, prefix = range(1, len(blocks) + 1), f"{run}: " if run else ""
        for scheme, style in zip(names, cycle(LINE_STYLES), strict=False):
            errors = [block.errors[Method(scheme, count)][0] for block in blocks]
            label = plain_label(prefix + scheme)
            axes.plot(numbers, errors, color=f"C{colour}", linestyle=style, marker=".", label=label)
        errors = [block.errors[block.trained][0] for block in blocks]
        axes.plot(numbers, errors, "x", color=f"C{colour}", markersize=9, label=plain_label(prefix + TRAINED))
    set_depth_axes(axes, "block", depth)


def run(args: argparse.Namespace) -> None:
    """Print, for each checkpoint and block, the relative errors of the schemes."""
    if unknown := [name for name in args.schemes if name not in tableau_names()]:
        raise UserError(f"--schemes {unknown[0]}: no Runge–Kutta scheme; there are {', '.join(tableau_names())}")
    tableaus = {name: get_tableau(name) for name in args.schemes}
    names, accuracy = tuple(tableaus), (args.tolerance, args.max_steps)
    sizes = ["relative_error", "absolute_error", "moved", "reference_steps", "reference_relative_error_bound"]
    rows: list[list[object]] = [["model", "block", "positions", "scheme", "steps", *sizes]]
    runs = {}
    for name, model, samples in systems.measured_models(args):
        blocks = block_errors(model.double(), samples, tableaus, args.steps, *accuracy)
        for block in blocks:
            print(f"{name}, " + "\n".join(table(block, names, args.steps)), flush=True)
            reference = [block.distance, block.steps, block.bound]
            for method, errors in block.errors.items():
                rows.append([name, block.block, block.positions, *method, *errors, *reference])
        runs[name] = blocks
    write_csv(args.csv, rows)
    if args.output is not None:
        stacks = systems.stacks_among([block.stack for block in blocks] for blocks in runs.values())
        draw = partial(draw_errors, runs=runs, names=names, count=args.steps[0])
        label = f"relative error, {args.steps[0]} step" + "s" * (args.steps[0] > 1)
        plot_stacks(args.output, stacks, draw, label, width=6, legend_size="x-small")
