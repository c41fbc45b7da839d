"""``ode-transformer analyse linear-probe``: quality lost with a layer made linear (Xu et al. 2020, section 4).

One pass over the training data fits all chosen layers; each fit then replaces its layer, and no other, while the test
set is decoded and scored: Tables 6 and 7.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ode_transformer.analysis.linear_probe.layer_probe import probe_layers
from ode_transformer.analysis.linear_probe.layer_replacement import relative_change
from ode_transformer.analysis.linear_probe.probe_setup import (
    LEAST_SQUARES,
    LIKELIHOOD,
    OBJECTIVES,
    DistillationOptions,
    ProbeOptions,
    ProbeSetup,
    SearchOptions,
)
from ode_transformer.analysis.plots import new_figure, save_figure
from ode_transformer.analysis.systems import add_data_arguments
from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.translation_scores import TOKENIZERS
from ode_transformer.nn.observers import STACKS, LayerId
from ode_transformer.support.arguments import add_search_arguments, positive_float, positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory, write_text
from ode_transformer.support.tables import markdown_table

METRIC_NAMES = tuple(name for name, metric in METRICS.items() if metric.statistics)  # those of one number
_DISTILLATION = DistillationOptions()  # the defaults


def table(metric: str, full: float, scores: Mapping[LayerId, float]) -> str:
    """Return Tables 6 and 7 in Markdown: the score with a layer replaced, and Δ, its change in per cent.

    :param metric: label of the metric
    :param full: score of the whole model
    """

    def cells(score: float | None) -> list[str]:
        change = None if score is None else relative_change(score, full)
        return ["–" if value is None else f"{value:.2f}" for value in (score, change)]

    stacks = [stack for stack in STACKS if any(layer.stack == stack for layer in scores)]
    titles = [title for stack in stacks for title in (f"{stack.capitalize()} {metric}", "Δ (%)")]
    rows = [["None", *(cell for _ in stacks for cell in cells(full))]]
    for number in sorted({layer.number for layer in scores}):
        rows.append([str(number), *(cell for stack in stacks for cell in cells(scores.get(LayerId(stack, number))))])
    return markdown_table(["Layer", *titles], rows)


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw Δ of each layer as a bar, with a colour for each stack."""
    figure = new_figure(7, 3.5)
    axes = figure.subplots()
    for offset, stack, colour in ((-0.2, "encoder", "C0"), (0.2, "decoder", "C1")):
        changes = {e["number"]: e["delta_percent"] for e in results["layers"] if e["stack"] == stack}
        if changes:
            heights = [0.0 if change is None else change for change in changes.values()]
            axes.bar([number + offset for number in changes], heights, width=0.4, color=colour, label=stack)
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
    """Declare the options of ``ode-transformer analyse linear-probe``."""
    parser.add_argument("path", type=Path, metavar="CHECKPOINT", help="trained translation model")
    add_data_arguments(parser, "test", None)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the results; the same command resumes"
    )
    parser.add_argument("--stack", choices=STACKS, help="layers of this stack only (default: of both)")
    parser.add_argument("--layer", type=positive_int, metavar="N", help="only layer N (default: all in turn)")
    parser.add_argument("--objective", choices=OBJECTIVES, default=LEAST_SQUARES, help="default: least-squares")
    for name, kind, description in (
        ("updates", positive_int, "number of updates"),
        ("lr", positive_float, "first learning rate"),
        ("seed", positive_int, "order of the batches"),
    ):
        default = getattr(_DISTILLATION, name)
        parser.add_argument(f"--{name}", type=kind, help=f"with --objective nll: {description} (default: {default:g})")
    parser.add_argument("--train-split", default="train", help="split of the data to fit on (default: train)")
    parser.add_argument(
        "--train-sentences", type=positive_int, metavar="N", help="fit on its first N sentences (default: all)"
    )
    parser.add_argument("--max-tokens", type=positive_int, default=4096, help="tokens in a batch of it (default: 4096)")
    parser.add_argument("--metric", choices=METRIC_NAMES, default="bleu", help="metric (default: bleu)")
    parser.add_argument("--tokenize", choices=TOKENIZERS, help="tokenisation of BLEU (default: 13a)")
    add_search_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table; write it, all results, the plot, the solutions and the translations into ``args.output``."""
    options = probe_options(args)
    new_figure(1, 1)  # fails now, not after hours, where matplotlib is missing
    setup = ProbeSetup(options)
    with lock_directory(options.output, "probing"):
        results = probe_layers(setup)
        full = results["full"]
        scores = {LayerId(e["stack"], e["number"]): e["score"]["value"] for e in results["layers"]}
        markdown = table(full["metric"], full["value"], scores)
        plot(results, options.output / "bars.png")
        write_text(options.output / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        write_text(options.output / "table.md", markdown + "\n")
    print(markdown)
    return 0


def probe_options(args: argparse.Namespace) -> ProbeOptions:
    """Return the options of a command line.

    :raises UserError: two of them do not go together
    """
    distillation = {name: getattr(args, name) for name in asdict(_DISTILLATION) if getattr(args, name) is not None}
    if distillation and args.objective != LIKELIHOOD:
        raise UserError(f"--{next(iter(distillation))} goes with --objective nll")
    if args.tokenize and args.metric != "bleu":
        raise UserError("--tokenize goes with --metric bleu")
    return ProbeOptions(
        data=args.data,
        checkpoint=args.path,
        output=args.output,
        stack=args.stack,
        layer=args.layer,
        distillation=DistillationOptions(**distillation) if args.objective == LIKELIHOOD else None,
        train_subset=args.train_split,
        max_train_sentences=args.train_sentences,
        max_tokens=args.max_tokens,
        test_subset=args.split,
        sentences=args.sentences,
        metric=args.metric,
        tokenize=args.tokenize,
        search=SearchOptions(args.beam, args.lenpen, args.max_len_b),
        batch_size=args.batch_size,
        remove_bpe=args.remove_bpe,
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        cpu=args.cpu,
        command=shlex.join(["ode-transformer", *args.words]),
    )
