"""``ode-transformer analyse linear-probe``: quality lost with a layer made linear (Xu et al. 2020, section 4).

One pass over the training data fits all chosen layers; each fit then replaces its layer, and no other, while the test
set is decoded and scored: Tables 6 and 7. Results are kept in a folder, so that the same command resumes:

    solutions/encoder-3.least-squares.pt    W and b, with R², rank and number of positions of the fit
    hypotheses/encoder-3.least-squares.txt  the translations; none.txt has those of the whole model
    references.txt                          the references of both
    steps/                                  records of the finished jobs, each with a digest of its request and files
"""

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import on_device
from ode_transformer.lab.analysis.arguments import LEAST_SQUARES, LIKELIHOOD
from ode_transformer.lab.analysis.layer_replacement import (
    LinearFit,
    LinearSums,
    distil,
    layer_sums,
    linear_layer,
    replace_layer,
)
from ode_transformer.lab.analysis.plots import new_figure, saved_panel
from ode_transformer.lab.analysis.systems import Translator
from ode_transformer.lab.metrics.metric import Score, Settings
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.nn import LayerId
from ode_transformer.nn.layer_hooks import depth_stacks
from ode_transformer.support.console import print_progress, track
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write, content_digest, lock_directory, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines
from ode_transformer.support.tables import markdown_table


class Probe:
    """The model of a probe, its data, and the folder of its results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.output = args, args.output
        self.translator = Translator(args, args.path)
        self.model, self.device = self.translator.model, self.translator.hub.device
        self.layers = chosen_layers(self.model, args.stack, args.layer)
        self.train = Split(self.translator.trained, args.data, "train")
        self.batches = self.train.batches(args.train_sentences, args.max_tokens)
        self.train_digest = content_digest(sorted(args.data.glob("train.*-*.*")))
        self.training_request = [self.train_digest, args.train_sentences, args.max_tokens]
        self.distillation: dict[str, Any] = {}
        if args.objective == LIKELIHOOD:
            self.distillation = {"updates": args.updates, "lr": args.lr, "seed": args.seed}
        self.references = self.translator.references()
        for folder in ("solutions", "hypotheses"):
            (self.output / folder).mkdir(parents=True, exist_ok=True)

    @property
    def jobs(self) -> Jobs:
        """Jobs for one request, which depend on the model and on that alone."""
        return Jobs(self.output / "steps", self.translator.model_digest, print_progress)

    def sample(self, batch: int) -> dict[str, Any]:
        """Return a batch of training sentences, on the model's device."""
        return on_device(self.train.sample(self.batches[batch]), self.device)

    def shuffled_samples(self) -> Iterator[dict[str, Any]]:
        """Yield the batches without end, in another order in each epoch."""
        for epoch in count(self.args.seed):
            order = torch.randperm(len(self.batches), generator=torch.Generator().manual_seed(epoch))
            yield from map(self.sample, order.tolist())

    @cached_property
    def sums(self) -> dict[LayerId, LinearSums]:
        """Sums for the fits of all chosen layers, from one pass over the training data."""
        samples = map(self.sample, track(range(len(self.batches)), "batches"))
        return layer_sums(self.model, samples, self.layers)

    def solution(self, layer: LayerId, start: LinearFit | None = None) -> LinearFit:
        """Return the least-squares fit of a layer, or with ``start`` the map trained from there, unless it is done."""
        objective = LEAST_SQUARES if start is None else LIKELIHOOD
        path = self.output / "solutions" / f"{layer.stack}-{layer.number}.{objective}.pt"

        def solve() -> None:
            if start is None:
                fit = self.sums[layer].fit()
                print_progress(f"  R² {fit.r_squared:.4f} of {fit.positions:,} positions")
            else:
                fit = distil(self.model, layer, start, self.shuffled_samples(), self.args.updates, self.args.lr)
            with atomic_write(path) as file:
                torch.save(asdict(fit), file)

        name, request = ("fit", []) if start is None else ("train", [self.distillation])
        self.jobs.run(f"{name} {layer}", [*self.training_request, *request], path, solve)
        return LinearFit(**torch.load(path, map_location=self.device, weights_only=True))

    def score(self, layer: LayerId | None = None, fit: LinearFit | None = None) -> Score:
        """Translate the test set with one layer replaced, or none, unless it is done, and score the translations."""
        name, file, request = "the whole model", "none", self.translator.request
        replaced: Any = nullcontext()
        if layer is not None and fit is not None:
            name, file = f"{layer}, {self.args.objective}", f"{layer.stack}-{layer.number}.{self.args.objective}"
            request = [*request, *self.training_request, self.distillation]
            function = linear_layer(fit.weight, fit.bias, next(self.model.parameters()))
            replaced = replace_layer(self.model, layer, function)
        path = self.output / "hypotheses" / f"{file}.txt"
        with replaced:
            self.jobs.run(f"decode {name}", request, path, partial(self.translator.write_translations, path))
        (score,) = METRICS[self.args.metric](read_lines(path), Settings(self.references, tokenize=self.args.tokenize))
        print_progress(f"  {score}")
        return score

    def results(self) -> dict[str, Any]:
        """Replace each chosen layer in turn; return all results, as ``results.json`` has them."""
        args = self.args
        write_text(self.output / "references.txt", "".join(f"{line}\n" for line in self.references))
        fits, full, layers = {layer: self.solution(layer) for layer in self.layers}, self.score(), []
        for layer, least_squares in fits.items():
            score = self.score(layer, self.solution(layer, least_squares) if self.distillation else least_squares)
            quality = {name: getattr(least_squares, name) for name in ("r_squared", "positions", "rank")}
            change = relative_change(score.value, full.value)
            layers.append({**layer._asdict(), "score": asdict(score), "delta_percent": change, **quality})
        sentences = sum(map(len, self.batches))
        training = {"subset": "train", "sentences": sentences, "content": self.train_digest}
        test = {"subset": args.split, "sentences": len(self.references), "content": self.translator.split_digest}
        return {
            "command": shlex.join(["ode-transformer", *args.words]),
            "checkpoint": {"path": str(args.path), "content": self.translator.model_digest},
            "objective": args.objective,
            "training": {**self.distillation, **training},
            "test": test,
            "full": asdict(full),
            "layers": layers,
        }


def chosen_layers(model: Any, stack_name: str | None, number: int | None) -> list[LayerId]:
    """Return the layers of a number, or all, in one stack or in both."""
    layers = []
    for name, stack in depth_stacks(model).items():
        if stack_name in (name, None):
            numbers = range(1, len(stack.layers) + 1)
            # Later layers add the values of the first.
            replaceable = numbers if stack.choice.value_residual == "none" else numbers[1:]
            chosen = numbers if number is None else [number]
            if not set(chosen) <= set(replaceable):
                raise UserError(
                    f"--layer: of the {name}, the layers {replaceable[0]} to {replaceable[-1]} can be replaced; choose "
                    "one of them, or another --stack"
                )
            layers += [LayerId(name, each) for each in chosen]
    if not layers:
        raise UserError(f"the layers of fairseq's class {type(model).__name__} cannot be replaced one by one")
    return layers


def relative_change(score: float, full: float) -> float | None:
    """Return Δ in per cent of the full model's score, as in Tables 6 and 7; None where that score is 0."""
    return 100 * (score - full) / full if full else None


def table(results: Mapping[str, Any]) -> str:
    """Return Tables 6 and 7 in Markdown: the score with a layer replaced, and Δ, its change in per cent."""
    full, layers = results["full"], results["layers"]
    stacks = list(dict.fromkeys(entry["stack"] for entry in layers))
    changes = {(entry["stack"], entry["number"]): (entry["score"]["value"], entry["delta_percent"]) for entry in layers}
    whole_model = full["value"], relative_change(full["value"], full["value"])
    titles = [title for stack in stacks for title in (f"{stack.capitalize()} {full['metric']}", "Δ (%)")]
    rows = []
    for number in ("None", *sorted({entry["number"] for entry in layers})):
        default = whole_model if number == "None" else (None, None)
        values = [value for stack in stacks for value in changes.get((stack, number), default)]
        rows.append([str(number), *("–" if value is None else f"{value:.2f}" for value in values)])
    return markdown_table(["Layer", *titles], rows)


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw Δ of each layer as a bar, with a colour for each stack."""
    numbers = sorted({entry["number"] for entry in results["layers"]})
    with saved_panel(path, 7, 3.5) as axes:
        for offset, stack, colour in ((-0.2, "encoder", "C0"), (0.2, "decoder", "C1")):
            changes = {e["number"]: e["delta_percent"] or 0.0 for e in results["layers"] if e["stack"] == stack}
            if changes:
                axes.bar([n + offset for n in changes], list(changes.values()), width=0.4, color=colour, label=stack)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(numbers)
        axes.set(xlim=(numbers[0] - 1, numbers[-1] + 1), xlabel="layer replaced by a linear map")
        axes.set_ylabel(f"change of {results['full']['metric']} (%)")
        axes.grid(axis="y", alpha=0.3)
        axes.legend()


def run(args: argparse.Namespace) -> None:
    """Print the table; write it, all results, the plot, the solutions and the translations into ``args.output``."""
    new_figure(1, 1)  # fails now, not after hours, where matplotlib is missing
    probe = Probe(args)
    with lock_directory(args.output, "probing"):
        results = probe.results()
        markdown = table(results)
        plot(results, args.output / "bars.png")
        write_text(args.output / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        write_text(args.output / "table.md", markdown + "\n")
    print(markdown)
