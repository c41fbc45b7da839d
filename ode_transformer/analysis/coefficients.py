"""What the coefficients of a trained model are: the weights of each layer's stages, averaged over real positions."""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ode_transformer.arguments import positive_int
from ode_transformer.evaluation.binarised import Split
from ode_transformer.evaluation.trained_model import load_trained_model
from ode_transformer.modules.depth_log import weights_watched
from ode_transformer.numerics import Weight


@dataclass(frozen=True)
class StageWeights:
    """Mean and deviation over positions of γ_i in one block.

    :param block: such as ``encoder layer 1``; ``encoder layer 1 ffn`` where sub-layers are stepped one by one
    :param mean: one number for each stage
    :param deviation: likewise; 0 where the weights do not depend on the position
    """

    block: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@torch.no_grad()
def stage_weights(model: Any, batches: list[dict[str, Any]], padding_idx: int) -> list[StageWeights]:
    """Runs the batches through the model and collects the weights of all stacks that have several stages.

    :param model: encoder–decoder model in evaluation mode
    :param batches: keyword arguments of ``model.forward``
    """
    seen: dict[tuple[str, int], list[Tensor]] = defaultdict(list)  # (stack, block) -> [stages, positions] each
    real: dict[str, Tensor] = {}  # positions of the batch at hand that are not padding, [B, T]; of a grid [B, S, T]
    stacks = {stack: getattr(model, stack) for stack in ("encoder", "decoder")}

    def see(stack: str, block: int, weights: Sequence[Weight]) -> None:
        spread = [torch.as_tensor(w).float().cpu() for w in weights]
        spread = [w.squeeze(-1) if w.dim() > 1 else w for w in spread]
        keep = real["grid"] if spread[0].dim() == 3 else real[stack]
        seen[stack, block].append(torch.stack([w.expand(keep.shape)[keep] for w in spread]))

    with ExitStack() as watched:
        for stack, part in stacks.items():
            watched.enter_context(weights_watched(part, partial(see, stack)))
        for batch in batches:
            real["encoder"] = batch["src_tokens"].ne(padding_idx).cpu()
            real["decoder"] = batch["prev_output_tokens"].ne(padding_idx).cpu()
            real["grid"] = real["encoder"][:, :, None] & real["decoder"][:, None, :]
            model(**batch)
    result = []
    for stack, part in stacks.items():
        for block, (number, parts) in enumerate(part.stepped):
            if (stack, block) in seen:
                name = " ".join((f"{stack} layer {number}", *parts))
                weights = torch.cat(seen[stack, block], dim=1)
                mean, deviation = weights.mean(dim=1), weights.std(dim=1, correction=0)
                result.append(StageWeights(name, tuple(mean.tolist()), tuple(deviation.tolist())))
    return result


def table(rows: list[StageWeights]) -> str:
    """One line for each layer; a line that says so if no stack has several stages."""
    if not rows:
        return "every layer has one stage, there is nothing to weigh"
    lines = []
    for row in rows:
        weights = "  ".join(f"{m:.3f} ± {d:.3f}" for m, d in zip(row.mean, row.deviation, strict=True))
        lines.append(f"{row.block}:  {weights}")
    return "\n".join(lines)


def measure(path: Path, data: Path, split: str, sentences: int) -> list[StageWeights]:
    """The stage weights of a checkpoint on the first sentences of a binarised data set.

    :raises UserError: the checkpoint or the data cannot be read
    """
    model, _, task = load_trained_model(path, data)
    part = Split(model, task, data, split, path)
    numbers = part.numbers(sentences)
    # The grid of a single pair is never divided (see ReformerDecoder), so that all of its cells are seen together.
    size = 1 if hasattr(model.decoder, "reduction") else 64
    batches = [part.sample(numbers[start : start + size])["net_input"] for start in range(0, len(numbers), size)]
    return stage_weights(model, batches, task.source_dictionary.pad())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer coefficients``."""
    parser.add_argument("data", type=Path, help="directory that fairseq-preprocess wrote")
    parser.add_argument("--path", type=Path, required=True, metavar="FILE", help="checkpoint")
    parser.add_argument("--split", default="valid", help="part of the data (default: valid)")
    parser.add_argument("--sentences", type=positive_int, default=512, help="how many at most (default: 512)")


def run(args: argparse.Namespace) -> int:
    """Print mean ± deviation of each stage's weight, layer by layer."""
    logging.disable(logging.INFO)  # fairseq tells how it loads; asked for is the table
    print(table(measure(args.path, args.data, args.split, args.sentences)))
    return 0
