"""One layer after another of a trained model, replaced by the nearest linear map: fitted, decoded and scored.

What is done is kept in a folder, so that the same request goes on after an interruption:

    solutions/encoder-3.least-squares.pt    W and b as ``model``, with R², rank and positions of the fit
    hypotheses/encoder-3.least-squares.txt  the translations, none.txt those of the whole model
    references.txt                          what both are scored against
    steps/                                  what each was made of; of another request or other files it is made again
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ode_transformer.analysis.linear_probe.layer_replacement import (
    Distillation,
    batch_sums,
    linear_layer,
    relative_change,
    replace_layer,
)
from ode_transformer.analysis.linear_probe.linear_fit import LinearFit, LinearSums
from ode_transformer.analysis.linear_probe.probe_files import load_fit, load_sums, save_fit, save_sums
from ode_transformer.decoding.binarised import Split, on_device
from ode_transformer.decoding.translate import best, load_hub, target_line
from ode_transformer.metrics.metric import Score, Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.models.depth_stack import DepthStack
from ode_transformer.nn.observers import STACKS, LayerId
from ode_transformer.support.checkpoint_file import load_checkpoint, save_checkpoint
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines

AT_ONCE = 400  # sentences that are translated between two reports


class Probe:
    """A model, its data, and the folder of what has been found out about it.

    :param args: the command line
    :raises UserError: something in it, or in the files that it names, is wrong
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.output = args, args.output
        of_nll = {name: getattr(args, name) for name in ("updates", "lr", "seed")}
        self.objective = of_nll if args.objective == "nll" else {}
        self.hub = load_hub(args.path, args.data, args.source_lang, args.target_lang, args.batch_size, cpu=args.cpu)
        self.model, self.task = self.hub.models[0], self.hub.task
        self.padding_idx = self.task.source_dictionary.pad()
        self.places = self._places()
        self.train, self.test = (
            Split(self.model, self.task, args.data, name, args.path) for name in (args.train_subset, args.gen_subset)
        )
        for number in self.test.too_long.nonzero()[0]:
            raise UserError(f"{args.data}: sentence {number + 1} of {args.gen_subset} is longer than the model takes")
        self.batches = self.train.batches(args.max_train_sentences, args.max_tokens)
        for folder in ("solutions", "hypotheses", "steps"):
            (self.output / folder).mkdir(parents=True, exist_ok=True)
        self.languages = self.task.cfg.source_lang, self.task.cfg.target_lang
        self.model_content = content_digest([args.path, *(args.data / f"dict.{name}.txt" for name in self.languages)])
        self.train_content = content_digest(sorted(args.data.glob(f"{args.train_subset}.*-*.*")))
        self.test_content = content_digest(sorted(args.data.glob(f"{args.gen_subset}.*-*.*")))

    def _places(self) -> list[LayerId]:
        """The layers that are asked for."""
        places = []
        for stack in STACKS:
            part = getattr(self.model, stack, None)
            if not isinstance(part, DepthStack):
                kind = type(self.model).__name__
                raise UserError(f"{self.args.path}: the layers of a {kind} cannot be replaced one by one")
            if self.args.stack in (stack, None):
                known = range(1, len(part.layers) + 1)
                asked = known if self.args.layer is None else [self.args.layer]
                if asked[-1] not in known:
                    raise UserError(f"--layer {asked[-1]}: the {stack} has the layers 1 to {known[-1]}")
                places += [LayerId(stack, number) for number in asked]
        return places

    def jobs(self, *request: Any) -> Jobs:
        """Return the jobs that depend on the checkpoint and on ``request`` alone."""
        return Jobs(
            self.output / "steps",
            Jobs(self.output).digest_of([self.model_content, self.languages, *request]),
            print_progress,
        )

    def file(self, place: LayerId, objective: str, folder: str = "solutions", ending: str = "pt") -> Path:
        return self.output / folder / f"{place.stack}-{place.number}.{objective}.{ending}"

    def sample(self, numbers: Sequence[int]) -> dict[str, Any]:
        return on_device(self.train.sample(numbers), self.hub.device)

    # The fits

    def fit(self) -> dict[LayerId, LinearFit]:
        """Of all layers, by least squares: those that are missing in one pass."""
        request = ["fit", self.train_content, self.args.max_train_sentences, self.args.max_tokens]
        kept = self.output / "solutions" / "sums.pt"

        def file(place: LayerId) -> Path:
            return self.file(place, "least-squares")

        missing = [p for p in self.places if not self.jobs(*request).is_done(f"fit {p}", None, file(p))]
        sums = self.collect(missing, kept, self.jobs(*request).digest) if missing else {}

        def solve(place: LayerId) -> None:
            try:
                found = sums[place].fit()
            except ValueError as error:
                raise UserError(f"{place}: {error}: give more training data (--max-train-sentences)") from error
            print_progress(f"  R² {found.r_squared:.4f} of {found.positions:,} positions")
            save_fit(found, file(place))

        # An interrupted pass may have been for more layers than are asked for now.
        for place in dict.fromkeys([*self.places, *sums]):
            self.jobs(*request).run(f"fit {place}", None, file(place), partial(solve, place))
        kept.unlink(missing_ok=True)
        return {place: load_fit(file(place), self.hub.device) for place in self.places}

    def collect(self, missing: Sequence[LayerId], kept: Path, request: str) -> dict[LayerId, LinearSums]:
        """One pass over the training data for the layers that are ``missing``, saved in ``kept`` every so often."""
        position, sums = 0, dict[LayerId, LinearSums]()
        if kept.exists():
            before, places, done, found = load_sums(kept, self.hub.device)
            if before == request and set(missing) <= set(places):
                missing, position, sums = places, done, found
                print_progress(f"the pass over the training data goes on at batch {position + 1:,}")
        print_progress(f"sums over {sum(map(len, self.batches)):,} sentences of {self.args.train_subset}")
        if left_out := int(self.train.too_long[: self.args.max_train_sentences].sum()):
            print_progress(f"  {left_out:,} more are longer than the model takes and left out")
        meter = ProgressMeter("batches", len(self.batches))
        while position < len(self.batches):
            sample = self.sample(self.batches[position])
            for place, more in batch_sums(self.model, sample["net_input"], missing).items():
                sums[place] = sums[place] + more if place in sums else more
            position += 1
            meter.update(position)
            if meter.is_save_due():
                save_sums(kept, request, missing, position, sums)
        save_sums(kept, request, missing, position, sums)
        return sums

    def distil(self, place: LayerId, start: LinearFit) -> LinearFit:
        """W and b by the likelihood of the training data, from the least-squares solution on."""
        result = self.file(place, "nll")
        request = ["nll", self.train_content, self.args.max_train_sentences, self.args.max_tokens, self.objective]
        job = self.jobs(*request)
        kept = self.file(place, "nll", ending="partial.pt")
        digest = job.digest

        def train() -> None:
            training = Distillation(self.model, place, start, self.args.updates, self.args.lr)
            if kept.exists() and (state := load_checkpoint(kept))["request"] == digest:
                training.load_state_dict(state["training"])
                print_progress(f"  goes on after update {training.update:,}")
            meter = ProgressMeter("updates", self.args.updates)
            while training.update < self.args.updates:
                epoch, index = divmod(training.update, len(self.batches))
                generator = torch.Generator().manual_seed(self.args.seed + epoch)
                number = torch.randperm(len(self.batches), generator=generator)[index]
                loss = training.step(self.sample(self.batches[number]), self.padding_idx)
                if training.update == 1:
                    print_progress(f"  loss {loss:.4f} nats per token in the first batch")
                meter.update(training.update, f", loss {loss:.4f} nats per token")
                if meter.is_save_due():
                    save_checkpoint({"request": digest, "training": training.state_dict(), "model": {}}, kept)
            layer = training.linear
            trained = LinearFit(
                layer.weight.detach(), layer.bias.detach(), start.positions, start.rank, start.r_squared
            )
            save_fit(trained, result)
            kept.unlink(missing_ok=True)

        job.run(f"train {place}", None, result, train)
        return load_fit(result, self.hub.device)

    # Decoding

    def references(self) -> Path:
        """The test set's, as fairseq-generate prints them; written anew each time."""
        path = self.output / "references.txt"
        rows = self.test.rows(range(len(self.test.too_long)))
        write_text(path, "".join(self.text(row["target"], escape_unk=True) for row in rows))
        return path

    def text(self, tokens: Tensor, escape_unk: bool = False) -> str:
        """A line of text."""
        return target_line(self.task, tokens, self.args.remove_bpe, escape_unk) + "\n"

    def decode(self, place: LayerId | None, fit: LinearFit | None) -> Path:
        """Translates the test set, with one layer replaced or none."""
        args = self.args
        search = {name: getattr(args, name) for name in ("beam", "lenpen", "max_len_b")}
        request = ["decode", self.test_content, search, args.batch_size, args.remove_bpe]
        if place is None:
            name, path = "decode the whole model", self.output / "hypotheses" / "none.txt"
        else:
            name, path = f"decode {place}, {args.objective}", self.file(place, args.objective, "hypotheses", "txt")
            request += [self.train_content, args.max_train_sentences, args.max_tokens, self.objective]

        def make() -> None:
            sources = [row["source"] for row in self.test.rows(range(len(self.test.too_long)))]
            meter = ProgressMeter("sentences", len(sources))
            lines = []
            for tokens in best(self.hub, sources, AT_ONCE, **search):
                lines.append(self.text(tokens))
                if len(lines) % AT_ONCE == 0 or len(lines) == len(sources):
                    meter.update(len(lines))
            write_text(path, "".join(lines))

        def replace_and_make() -> None:
            assert place is not None
            assert fit is not None
            with replace_layer(self.model, place, linear_layer(fit.weight, fit.bias, next(self.model.parameters()))):
                make()

        self.jobs(*request).run(name, None, path, make if place is None else replace_and_make)
        return path

    def run(self) -> dict[str, Any]:
        """All results, as they are written to ``results.json``."""
        args, metric = self.args, METRICS[self.args.metric]
        references = read_lines(self.references())
        settings = Settings(references, tokenize=args.tokenize or "13a")

        def score(hypotheses: Path) -> Score:
            (found,) = metric(read_lines(hypotheses), settings)
            return found

        fits = self.fit()
        full = score(self.decode(None, None))
        print_progress(f"  {full}")
        layers = []
        for place, start in fits.items():
            fit = self.distil(place, start) if args.objective == "nll" else start
            found = score(self.decode(place, fit))
            change = relative_change(found.value, full.value)
            print_progress(f"  {found}")
            known = {"r_squared": start.r_squared, "positions": start.positions, "rank": start.rank}
            layers.append({**place._asdict(), "score": asdict(found), "delta_percent": change, **known})
        return {
            "command": shlex.join(["ode-transformer", *args.words]),
            "checkpoint": {"path": str(args.path), "content": self.model_content},
            "objective": args.objective,
            "training": {
                **self.objective,
                "subset": args.train_subset,
                "sentences": sum(map(len, self.batches)),
                "content": self.train_content,
            },
            "test": {"subset": args.gen_subset, "sentences": len(references), "content": self.test_content},
            "full": asdict(full),
            "layers": layers,
        }
