"""``ode-transformer analyse stage-inputs``: what the stages of a trained model's steps read, and what they add.

A scheme with s stages evaluates the F of a block at s points (see :mod:`ode_transformer.numerics.runge_kutta`):

    z_i = y + h Σ_{j<i} a_ij F_j,   F_i = F(z_i)

h is 1 or --ode-step-size; with --ode-steps n, z_i has h/n instead. With pre-norm, F reads the direction of z_i and not
its length. If ‖z_i − y‖ is many times ‖y‖, a stage sees what the stages before it added, and hardly y itself.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.functional import cosine_similarity

from ode_transformer.lab.analysis import systems
from ode_transformer.lab.analysis.depth.block_flows import measure_flows, recording
from ode_transformer.lab.analysis.plots import write_csv
from ode_transformer.nn import BlockId
from ode_transformer.nn.layer_hooks import depth_stacks
from ode_transformer.numerics import VectorField, get_tableau, runge_kutta_steps


class StageInput(NamedTuple):
    """Means over the positions of a block for one stage i of its step, the first where a layer takes several.

    :param stage: i, from 1 on
    :param moved: ‖z_i − y‖ / ‖y‖, 0 for the first stage
    :param increment: h ‖F_i‖ / ‖y‖, with h of the whole layer where it takes several steps
    :param cosine: of the angle between F_i and F_1
    """

    block: str
    stage: int
    moved: float
    increment: float
    cosine: float


def stage_inputs(model: Any, samples: Sequence[Mapping[str, Any]]) -> list[StageInput]:
    """Measure the stages of all blocks that have an F, in the order of their depth."""
    stacks = depth_stacks(model)

    def measure(block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor) -> list[Tensor]:
        evaluate, points, increments = recording(field)
        choice = stacks[block.stack].choice
        runge_kutta_steps(evaluate, y, get_tableau(choice.scheme), 1, 1 / choice.steps)
        start, first, rows = y.float(), increments[0].float(), []
        for point, increment in zip(points, increments, strict=True):
            norms = [vector.float().norm(dim=-1) / start.norm(dim=-1) for vector in (point.float() - start, increment)]
            rows += [*norms, cosine_similarity(increment.float(), first, dim=-1)]
        return rows

    return [
        StageInput(str(block), stage, *means)
        for block, rows in measure_flows(model, samples, measure).items()
        for stage, means in enumerate(rows.double().mean(dim=1).view(-1, 3).tolist(), 1)
    ]


def table(stages: Sequence[StageInput]) -> list[str]:
    """Return a line of titles, and one for each stage of each block."""
    width = max(len(stage.block) for stage in stages)
    lines = [f"{'block':{width}}  stage  |z-y|/|y|  |hF|/|y|  cosine of F and F_1"]
    for stage in stages:
        numbers = f"{stage.moved:9.3g}  {stage.increment:8.3g}  {stage.cosine:6.3f}"
        lines.append(f"{stage.block:{width}}  {stage.stage:5}  {numbers}")
    return lines


def run(args: argparse.Namespace) -> None:
    """Print what the stages of each checkpoint read and add, block by block."""
    rows: list[list[object]] = [["model", "block", "stage", "moved", "increment", "cosine"]]
    for name, model, samples in systems.measured_models(args):
        stages = stage_inputs(model, samples)
        print("\n".join([f"{name}:", *table(stages)]), flush=True)
        rows += [[name, *stage] for stage in stages]
    write_csv(args.csv, rows)
