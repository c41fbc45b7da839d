"""Options, model, data and results folder of a linear probe.

Results are kept in a folder, so that the same command resumes after an interruption:

    solutions/encoder-3.least-squares.pt    W and b as ``model``, with R², rank and number of positions of the fit
    hypotheses/encoder-3.least-squares.txt  the translations; none.txt has those of the whole model
    references.txt                          the references of both
    steps/                                  records of the finished jobs, each with a digest of its request and files
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ode_transformer.decoding.binarised import Split, on_device
from ode_transformer.decoding.split_translation import joined_pieces
from ode_transformer.decoding.translate import load_hub
from ode_transformer.nn.observers import STACKS, LayerId, observable_stacks
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest
from ode_transformer.support.jobs import Jobs

LEAST_SQUARES, LIKELIHOOD = OBJECTIVES = "least-squares", "nll"


@dataclass(frozen=True)
class DistillationOptions:
    """Options of training W and b by the likelihood of the training data.

    :param updates: number of updates
    :param lr: first learning rate
    :param seed: order of the batches
    """

    updates: int = 1000
    lr: float = 1e-3
    seed: int = 1


@dataclass(frozen=True)
class SearchOptions:
    """Options of fairseq's search."""

    beam: int
    lenpen: float
    max_len_b: int


@dataclass(frozen=True)
class ProbeOptions:
    """Options of a probe.

    :param data: directory that fairseq-preprocess wrote
    :param checkpoint: the model
    :param output: folder of the results
    :param stack: replace layers of this stack only
    :param layer: replace layers of this number only
    :param distillation: None for the least-squares solution itself
    :param train_subset: split of the data to fit on
    :param max_train_sentences: number of its sentences to fit on; None for all
    :param max_tokens: tokens in a batch of the fit
    :param test_subset: split of the data to decode and score
    :param sentences: number of its sentences; None for all
    :param metric: a metric with one number
    :param tokenize: tokenisation of BLEU
    :param search: options of the search
    :param batch_size: sentences in a batch of the search
    :param remove_bpe: how pieces are joined, as in fairseq-generate; None for the marks in the target dictionary
    :param source_lang: source language, where neither the checkpoint nor the data names it
    :param target_lang: target language, likewise
    :param cpu: use no GPU
    :param command: the command line, for the results
    """

    data: Path
    checkpoint: Path
    output: Path
    stack: str | None
    layer: int | None
    distillation: DistillationOptions | None
    train_subset: str
    max_train_sentences: int | None
    max_tokens: int
    test_subset: str
    sentences: int | None
    metric: str
    tokenize: str | None
    search: SearchOptions
    batch_size: int
    remove_bpe: str | None
    source_lang: str | None
    target_lang: str | None
    cpu: bool
    command: str

    @property
    def objective(self) -> str:
        """Name of the objective in file names and results."""
        return LEAST_SQUARES if self.distillation is None else LIKELIHOOD

    @property
    def distillation_settings(self) -> dict[str, Any]:
        """Settings of the distillation; empty without one."""
        return {} if self.distillation is None else asdict(self.distillation)


class ProbeSetup:
    """The model of a probe, its data, and the folder of its results.

    :raises UserError: an option, or a file that it names, is wrong
    """

    def __init__(self, options: ProbeOptions) -> None:
        self.options, self.output = options, options.output
        data, checkpoint = options.data, options.checkpoint
        languages = options.source_lang, options.target_lang
        self.hub = load_hub(checkpoint, data, *languages, batch_size=options.batch_size, cpu=options.cpu)
        self.model, self.task = self.hub.models[0], self.hub.task
        self.remove_bpe = joined_pieces(self.task, options.remove_bpe)
        self.padding_idx = self.task.source_dictionary.pad()
        self.layers = chosen_layers(self.model, options)
        self.train, self.test = (
            Split(self.model, self.task, data, name, checkpoint) for name in (options.train_subset, options.test_subset)
        )
        self.test_numbers = self.test.first_numbers(options.sentences)
        self.batches = self.train.batches(options.max_train_sentences, options.max_tokens)
        for folder in ("solutions", "hypotheses", "steps"):
            (self.output / folder).mkdir(parents=True, exist_ok=True)
        self.languages = self.task.cfg.source_lang, self.task.cfg.target_lang
        self.model_digest = content_digest([checkpoint, *(data / f"dict.{name}.txt" for name in self.languages)])
        self.train_digest = content_digest(sorted(data.glob(f"{options.train_subset}.*-*.*")))
        self.test_digest = content_digest(sorted(data.glob(f"{options.test_subset}.*-*.*")))

    @property
    def training_request(self) -> list[Any]:
        """Everything about the training data on which a fit depends."""
        return [self.train_digest, self.options.max_train_sentences, self.options.max_tokens]

    def jobs(self, *request: Any) -> Jobs:
        """Return jobs that depend on the model and on ``request`` alone."""
        digest = Jobs(self.output).digest_of([self.model_digest, self.languages, *request])
        return Jobs(self.output / "steps", digest, print_progress)

    def solution_path(self, layer: LayerId, objective: str, ending: str = "pt") -> Path:
        """Return the file of a layer's fit."""
        return self.output / "solutions" / f"{layer.stack}-{layer.number}.{objective}.{ending}"

    def hypotheses_path(self, layer: LayerId | None) -> Path:
        """Return the file of the translations with one layer replaced, or none."""
        name = "none" if layer is None else f"{layer.stack}-{layer.number}.{self.options.objective}"
        return self.output / "hypotheses" / f"{name}.txt"

    def training_sample(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return fairseq's batch of these training sentences, on the model's device."""
        return on_device(self.train.sample(numbers), self.hub.device)


def chosen_layers(model: Any, options: ProbeOptions) -> list[LayerId]:
    """Return the layers that the options choose.

    :raises UserError: there is no such layer, or the model's layers cannot be replaced
    """
    stacks = observable_stacks(model)
    if tuple(stacks) != STACKS:
        model_class = type(model).__name__
        raise UserError(f"{options.checkpoint}: the layers of a {model_class} cannot be replaced one by one")
    layers = []
    for name, stack in stacks.items():
        if options.stack in (name, None):
            count = len(stack.layers)
            if options.layer is not None and options.layer > count:
                raise UserError(f"--layer {options.layer}: the {name} has the layers 1 to {count}")
            numbers = range(1, count + 1) if options.layer is None else [options.layer]
            if stack.choice.value_residual != "none" and count > 1 and 1 in numbers:
                raise UserError(
                    f"--layer 1: later layers of the {name} add its values (--value-residual), so it cannot be "
                    f"replaced; choose one of the layers 2 to {count}"
                )
            layers += [LayerId(name, number) for number in numbers]
    return layers
