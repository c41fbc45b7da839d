"""Trained models on the command line, and the sentences on which they are measured."""

import argparse
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ode_transformer.decoding.binarised import Split, joined_pieces, target_line
from ode_transformer.decoding.teacher_forcing import forward_pass
from ode_transformer.decoding.trained_model import load_hub, load_trained_model
from ode_transformer.decoding.translate import search_all
from ode_transformer.lab.analysis.plots import check_outputs
from ode_transformer.nn import STACKS
from ode_transformer.nn.layer_hooks import depth_stacks, removed_afterwards
from ode_transformer.support.arguments import named_systems
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest, write_text

MAX_TOKENS = 4096  # of a batch
Samples = Iterable[Mapping[str, Any]]  # fairseq's batches


class Translator:
    """A translation model with the sentences that it translates.

    :param args: options of :func:`add_data_arguments` and ``add_search_arguments``
    :raises UserError: a sentence is longer than the model takes
    """

    def __init__(self, args: argparse.Namespace, path: Path) -> None:
        self.hub = load_hub(args, path)
        self.trained = self.hub.trained
        self.model, self.dictionary = self.trained.model, self.trained.target_dictionary
        self.remove_bpe = joined_pieces(self.dictionary, args.remove_bpe)
        self.split = Split(self.trained, args.data, args.split)
        self.numbers = self.split.first_numbers(args.sentences)
        self.chunk_size = 4 * args.batch_size
        self.search = {name: getattr(args, name) for name in ("beam", "lenpen", "max_len_a", "max_len_b")}
        languages = self.hub.languages
        self.model_digest = content_digest([path, *(args.data / f"dict.{language}.txt" for language in languages)])
        self.split_digest = content_digest(sorted(args.data.glob(f"{args.split}.*-*.*")))
        search = [self.search, args.batch_size, self.remove_bpe]
        self.request = [self.split_digest, languages, len(self.numbers), *search]  # all that decides translations

    def references(self) -> list[str]:
        rows = self.split.rows(self.numbers)
        return [target_line(self.dictionary, row["target"], self.remove_bpe, escape_unk=True) for row in rows]

    def write_translations(self, path: Path) -> None:
        """Write the best translation of each sentence; lines on standard error say how far it is."""
        sources = [row["source"] for row in self.split.rows(self.numbers)]
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))  # for little padding
        sorted_sources, lines = [sources[index] for index in by_length], [""] * len(sources)
        translations = search_all(self.hub, sorted_sources, "sentences decoded", self.chunk_size, **self.search)
        for index, hypotheses in zip(by_length, translations, strict=True):
            lines[index] = target_line(self.dictionary, hypotheses[0]["tokens"], self.remove_bpe)
        write_text(path, "".join(f"{line}\n" for line in lines))


def measured_models(args: argparse.Namespace) -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """Yield each system's name, its model in evaluation mode, and fairseq's batches of its sentences."""
    systems = named_systems(args)
    for path in systems.values():
        open(path).close()  # fails now, not after the others have been measured
    check_outputs(getattr(args, "output", None), getattr(args, "csv", None))
    for name, path in systems.items():
        trained = load_trained_model(path, args.data, language_model=True)
        model = trained.model
        if not depth_stacks(model):
            raise UserError(f"{path}: the layers of fairseq's class {type(model).__name__} cannot be observed")
        split = Split(trained, args.data, args.split)
        yield name, model, [split.sample(numbers) for numbers in split.batches(args.sentences, MAX_TOKENS)]


def run_hooked(model: Any, samples: Samples, hook: Callable[..., Iterable[Any]], see: Callable[..., Any]) -> None:
    """Run fairseq's batches through a model without gradients, while ``see`` looks into its stacks.

    :param hook: such as ``see_steps``, called with each stack and ``see``; returns the handles of its hooks
    """
    handles = [handle for stack in depth_stacks(model).values() for handle in hook(stack, see)]
    with torch.no_grad(), removed_afterwards(handles):
        for sample in samples:
            forward_pass(model, sample["net_input"])


def measure_positions(
    model: Any, samples: Samples, hook: Callable[..., Iterable[Any]], measure: Callable[..., Iterable[Tensor]]
) -> dict[Any, Tensor]:
    """Run batches, see :func:`run_hooked`; measure the layers or blocks at each position that is no padding.

    :param measure: called as ``hook`` says; returns numbers that broadcast to the positions of the padding
    :return: layer or block -> what was measured of it in all batches, [numbers, positions]
    """
    measured: dict[Any, list[Tensor]] = defaultdict(list)

    def see(name: Any, *seen: Any) -> None:
        real = seen[-1].logical_not().cpu()
        rows = [row.cpu().expand(real.shape)[real] for row in measure(name, *seen)]
        measured[name].append(torch.stack(rows))

    run_hooked(model, samples, hook, see)
    return {name: torch.cat(rows, dim=1) for name, rows in measured.items()}


def stacks_among(runs: Iterable[Collection[str]]) -> list[str]:
    """Return the stacks that at least one model has, in the order of ``STACKS``."""
    names = {stack for run in runs for stack in run}
    return [stack for stack in STACKS if stack in names]
