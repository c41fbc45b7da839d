"""``ode-transformer probe-linear``: what a trained model loses when one layer becomes a linear map (Xu et al. 2020, 4).

One pass over the training data fits all layers that are asked for; each fit is then put in its layer's place, alone,
and the test set is decoded and scored: Tables 6 and 7.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.analysis.linear_probe.layer_replacement import relative_change
from ode_transformer.analysis.plots import new_figure, save_figure
from ode_transformer.metrics.translation_scores import TOKENIZERS
from ode_transformer.nn.observers import STACKS, LayerId
from ode_transformer.support.arguments import add_search_arguments, positive_float, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text

MEASURES = ("bleu", "chrf", "per", "wer")  # those that are one number, from output and references alone
OBJECTIVES = ("least-squares", "nll")
NLL = {"updates": 1000, "lr": 1e-3, "seed": 1}  # defaults of what goes with --objective nll


def table(metric: str, full: float, scores: Mapping[LayerId, float]) -> str:
    """Tables 6 and 7 in Markdown: the score without a layer's non-linearity, and Δ, its change in per cent."""

    def cells(score: float | None) -> str:
        change = None if score is None else relative_change(score, full)
        return " | ".join("–" if value is None else f"{value:.2f}" for value in (score, change))

    stacks = [stack for stack in STACKS if any(place.stack == stack for place in scores)]
    head = [f"{stack.capitalize()} {metric} | Δ (%)" for stack in stacks]
    lines = [f"| Layer | {' | '.join(head)} |", "|---|" + "---:|---:|" * len(stacks)]
    lines.append(f"| None | {' | '.join(cells(full) for _ in stacks)} |")
    for number in sorted({place.number for place in scores}):
        row = (cells(scores.get(LayerId(stack, number))) for stack in stacks)
        lines.append(f"| {number} | {' | '.join(row)} |")
    return "\n".join(lines)


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Δ of each layer as a bar, a colour for each stack, as a PNG."""
    figure = new_figure(7, 3.5)
    axes = figure.subplots()
    for side, stack, colour in ((-0.2, "encoder", "C0"), (0.2, "decoder", "C1")):
        bars = {e["number"]: e["delta_percent"] for e in results["layers"] if e["stack"] == stack}
        if bars:
            heights = [0.0 if change is None else change for change in bars.values()]
            axes.bar([number + side for number in bars], heights, width=0.4, color=colour, label=stack)
    axes.axhline(0, color="black", linewidth=0.8)
    numbers = sorted({entry["number"] for entry in results["layers"]})
    axes.set_xticks(numbers)
    axes.set_xlim(numbers[0] - 1, numbers[-1] + 1)
    axes.set_xlabel("layer replaced by a linear map")
    axes.set_ylabel(f"change of {results['full']['metric']} (%)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer probe-linear``."""
    parser.add_argument("data", type=Path, help="directory that fairseq-preprocess wrote")
    parser.add_argument("--path", type=Path, required=True, metavar="FILE", help="checkpoint")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where results are kept, to go on")
    parser.add_argument("--stack", choices=STACKS, help="layers of this one alone (default: of both)")
    parser.add_argument(
        "--layer", type=positive_int, metavar="N", help="this layer alone, from 1 on (default: all in turn)"
    )
    parser.add_argument("--objective", choices=OBJECTIVES, default="least-squares", help="default: least-squares")
    parser.add_argument("--updates", type=positive_int, help=f"of --objective nll (default: {NLL['updates']})")
    parser.add_argument("--lr", type=positive_float, help=f"likewise: first learning rate (default: {NLL['lr']:g})")
    parser.add_argument("--seed", type=positive_int, help=f"likewise: order of the batches (default: {NLL['seed']})")
    parser.add_argument("--train-subset", default="train", help="part of the data to fit on (default: train)")
    parser.add_argument(
        "--max-train-sentences", type=positive_int, metavar="N", help="its first N alone (default: all)"
    )
    parser.add_argument("--max-tokens", type=positive_int, default=4096, help="of a batch there (default: 4096)")
    parser.add_argument("--gen-subset", default="test", help="part of the data to decode and score (default: test)")
    parser.add_argument("--metric", choices=MEASURES, default="bleu", help="measure (default: bleu)")
    parser.add_argument("--tokenize", choices=TOKENIZERS, help="bleu: the flavour (default: 13a)")
    add_search_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table; write it, all results, the plot, the solutions and the translations into ``args.output``."""
    logging.disable(logging.INFO)  # fairseq tells how it loads; asked for is the table
    warnings.filterwarnings("ignore", message="'pin_memory'")  # which fairseq asks for with or without a GPU
    for name, default in NLL.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
        elif args.objective != "nll":
            raise UserError(f"--{name} goes with --objective nll")
    if args.tokenize and args.metric != "bleu":
        raise UserError("--tokenize goes with --metric bleu")
    new_figure(1, 1)  # if there is no matplotlib, it should be known now
    from ode_transformer.analysis.linear_probe.layer_probe import (
        Probe,  # here, because fairseq tells that it is imported, too
    )

    results = Probe(args).run()
    full = results["full"]
    scores = {LayerId(e["stack"], e["number"]): e["score"]["value"] for e in results["layers"]}
    printed = table(full["metric"], full["value"], scores)
    draw(results, args.output / "bars.png")
    write_text(args.output / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    write_text(args.output / "table.md", printed + "\n")
    print(printed)
    return 0
