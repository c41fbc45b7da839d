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
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.translation_hub import on_device
from ode_transformer.lab.analysis.arguments import LEAST_SQUARES, LIKELIHOOD
from ode_transformer.lab.analysis.layer_replacement import (
    distil,
    layer_sums,
    linear_layer,
    relative_change,
    replace_layer,
)
from ode_transformer.lab.analysis.linear_fit import LinearFit
from ode_transformer.lab.analysis.plots import new_figure, save_figure
from ode_transformer.lab.analysis.systems import Translator
from ode_transformer.lab.metrics.metric import Score, Settings
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.models.layer_hooks import depth_stacks
from ode_transformer.nn import STACKS, LayerId
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
        self.model, self.hub = self.translator.model, self.translator.hub
        self.layers = chosen_layers(self.model, args.stack, args.layer)
        self.train = Split(self.model, self.translator.task, args.data, "train", args.path)
        self.batches = self.train.batches(args.train_sentences, args.max_tokens)
        self.train_digest = content_digest(sorted(args.data.glob("train.*-*.*")))
        self.training_request = [self.train_digest, args.train_sentences, args.max_tokens]
        self.distillation = {"updates": args.updates, "lr": args.lr, "seed": args.seed}
        if args.objective == LEAST_SQUARES:
            self.distillation = {}
        for folder in ("solutions", "hypotheses"):
            (self.output / folder).mkdir(parents=True, exist_ok=True)

    def jobs(self, request: list[Any]) -> Jobs:
        """Return the jobs that depend on the model and on ``request`` alone."""
        digest = Jobs(self.output).digest_of([self.translator.model_digest, *request])
        return Jobs(self.output / "steps", digest, print_progress)

    def solution_path(self, layer: LayerId, objective: str) -> Path:
        """Return the file of a layer's fit."""
        return self.output / "solutions" / f"{layer.stack}-{layer.number}.{objective}.pt"

    def sample(self, batch: int) -> dict[str, Any]:
        """Return a batch of training sentences, on the model's device."""
        return on_device(self.train.sample(self.batches[batch]), self.hub.device)

    def fit_layers(self) -> dict[LayerId, LinearFit]:
        """Fit all chosen layers by least squares; those without a solution share one pass over the training data."""
        paths = {layer: self.solution_path(layer, LEAST_SQUARES) for layer in self.layers}
        jobs = self.jobs(["fit", *self.training_request])
        unsolved = [layer for layer, path in paths.items() if not jobs.is_done(f"fit {layer}", None, path)]
        batches = range(len(self.batches)) if unsolved else range(0)
        inputs = (self.sample(number)["net_input"] for number in track(batches, "batches"))
        sums = layer_sums(self.model, inputs, unsolved)

        def solve(layer: LayerId) -> None:
            fit = sums[layer].fit()
            print_progress(f"  R² {fit.r_squared:.4f} of {fit.positions:,} positions")
            save_fit(fit, paths[layer])

        for layer, path in paths.items():
            self.jobs(["fit", *self.training_request]).run(f"fit {layer}", None, path, partial(solve, layer))
        return {layer: load_fit(path, self.hub.device) for layer, path in paths.items()}

    def distil_layer(self, layer: LayerId, start: LinearFit) -> LinearFit:
        """Train W and b by the likelihood of the training data, from the least-squares solution, unless it is done."""
        path = self.solution_path(layer, LIKELIHOOD)

        def train() -> None:
            updates, lr, seed = (self.distillation[name] for name in ("updates", "lr", "seed"))
            orders: dict[int, list[int]] = {}

            def sample(update: int) -> dict[str, Any]:
                epoch, index = divmod(update, len(self.batches))
                if epoch not in orders:
                    generator = torch.Generator().manual_seed(seed + epoch)
                    orders[epoch] = torch.randperm(len(self.batches), generator=generator).tolist()
                return self.sample(orders[epoch][index])

            padding_idx = self.translator.task.source_dictionary.pad()
            save_fit(distil(self.model, layer, start, sample, updates, lr, padding_idx), path)

        self.jobs([LIKELIHOOD, *self.training_request, self.distillation]).run(f"train {layer}", None, path, train)
        return load_fit(path, self.hub.device)

    def decode(self, layer: LayerId | None = None, fit: LinearFit | None = None) -> Path:
        """Translate the test set with one layer replaced, or none; return the file of the translations."""
        name, request = "the whole model", ["decode", *self.translator.request]
        path = self.output / "hypotheses" / "none.txt"
        replaced: Any = nullcontext()
        if layer is not None and fit is not None:
            name = f"{layer}, {self.args.objective}"
            request += [*self.training_request, self.distillation]
            path = path.with_name(f"{layer.stack}-{layer.number}.{self.args.objective}.txt")
            function = linear_layer(fit.weight, fit.bias, next(self.model.parameters()))
            replaced = replace_layer(self.model, layer, function)
        with replaced:
            self.jobs(request).run(f"decode {name}", None, path, partial(self.translator.write_translations, path))
        return path

    def results(self) -> dict[str, Any]:
        """Replace each chosen layer in turn; return all results, as ``results.json`` has them."""
        args, references = self.args, self.translator.references()
        write_text(self.output / "references.txt", "".join(f"{line}\n" for line in references))
        settings = Settings(references, tokenize=args.tokenize)

        def score(hypotheses: Path) -> Score:
            (score,) = METRICS[args.metric](read_lines(hypotheses), settings)
            print_progress(f"  {score}")
            return score

        fits, full, layers = self.fit_layers(), score(self.decode()), []
        for layer, least_squares in fits.items():
            fit = self.distil_layer(layer, least_squares) if self.distillation else least_squares
            layer_score = score(self.decode(layer, fit))
            change = relative_change(layer_score.value, full.value)
            quality = {name: getattr(least_squares, name) for name in ("r_squared", "positions", "rank")}
            layers.append({**layer._asdict(), "score": asdict(layer_score), "delta_percent": change, **quality})
        sentences = sum(map(len, self.batches))
        training = {"subset": "train", "sentences": sentences, "content": self.train_digest}
        test = {"subset": args.split, "sentences": len(references), "content": self.translator.split_digest}
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


def save_fit(fit: LinearFit, path: Path) -> None:
    """Write a fit."""
    with atomic_write(path) as file:
        torch.save(asdict(fit), file)


def load_fit(path: Path, device: torch.device) -> LinearFit:
    """Read a file that :func:`save_fit` wrote."""
    return LinearFit(**torch.load(path, map_location=device, weights_only=True))


def table(metric: str, full: float, scores: Mapping[LayerId, float]) -> str:
    """Return Tables 6 and 7 in Markdown: the score with a layer replaced, and Δ, its change in per cent."""

    def entries(score: float | None) -> list[str]:
        change = None if score is None else relative_change(score, full)
        return ["–" if value is None else f"{value:.2f}" for value in (score, change)]

    stacks = [stack for stack in STACKS if any(layer.stack == stack for layer in scores)]
    titles = [title for stack in stacks for title in (f"{stack.capitalize()} {metric}", "Δ (%)")]
    rows = [["None", *(entry for _ in stacks for entry in entries(full))]]
    for number in sorted({layer.number for layer in scores}):
        layers = [LayerId(stack, number) for stack in stacks]
        rows.append([str(number), *(entry for layer in layers for entry in entries(scores.get(layer)))])
    return markdown_table(["Layer", *titles], rows)


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw Δ of each layer as a bar, with a colour for each stack."""
    figure = new_figure(7, 3.5)
    axes = figure.subplots()
    for offset, stack, colour in ((-0.2, "encoder", "C0"), (0.2, "decoder", "C1")):
        changes = {e["number"]: e["delta_percent"] or 0.0 for e in results["layers"] if e["stack"] == stack}
        if changes:
            axes.bar([n + offset for n in changes], list(changes.values()), width=0.4, color=colour, label=stack)
    axes.axhline(0, color="black", linewidth=0.8)
    numbers = sorted({entry["number"] for entry in results["layers"]})
    axes.set_xticks(numbers)
    axes.set_xlim(numbers[0] - 1, numbers[-1] + 1)
    axes.set_xlabel("layer replaced by a linear map")
    axes.set_ylabel(f"change of {results['full']['metric']} (%)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def run(args: argparse.Namespace) -> int:
    """Print the table; write it, all results, the plot, the solutions and the translations into ``args.output``."""
    new_figure(1, 1)  # fails now, not after hours, where matplotlib is missing
    probe = Probe(args)
    with lock_directory(args.output, "probing"):
        results = probe.results()
        full = results["full"]
        scores = {LayerId(e["stack"], e["number"]): e["score"]["value"] for e in results["layers"]}
        markdown = table(full["metric"], full["value"], scores)
        plot(results, args.output / "bars.png")
        write_text(args.output / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        write_text(args.output / "table.md", markdown + "\n")
    print(markdown)
    return 0
