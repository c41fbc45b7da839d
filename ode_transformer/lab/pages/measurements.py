"""Measurements on the model of a run: its size, its depth, and chosen sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ode_transformer.decoding.attention_maps import axis_tokens
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.operations import count_forward_operations
from ode_transformer.decoding.teacher_forcing import surprisals
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.lab.analysis.depth.block_flows import BlockErrors, DepthPath, block_errors, depth_paths, refusals
from ode_transformer.lab.analysis.depth.coefficients import StageWeights, stage_weights
from ode_transformer.lab.analysis.depth.gradient_norms import activation_norms, gradient_norms
from ode_transformer.lab.analysis.one_sentence import LONGEST_MAP, AttentionMatrix, attention, word_weights
from ode_transformer.lab.pages.runs import ReportedRun
from ode_transformer.nn.layer_hooks import depth_stacks
from ode_transformer.numerics import get_tableau
from ode_transformer.support.arguments import check_within

SCHEMES = ("euler", "rk2", "rk4")
MAX_TOKENS = 2048  # of a batch
# The solutions of truncation errors are found in double precision, so that few sentences have to do.
CHOSEN = 3  # sentences for attention and depth, unless the user names some
FLOW_SENTENCES, FLOW_TOLERANCE, FLOW_STEPS = 4, 1e-3, 64


@dataclass(frozen=True)
class MeasuredSentence:
    """A sentence as one model sees it.

    :param tokens: of each side, with the end symbol
    :param word_weights: of the blocks whose stages' weights differ from token to token
    :param bits: surprisal of each target token
    """

    number: int
    tokens: Mapping[str, list[str]]
    word_weights: dict[str, Tensor]
    attention: list[AttentionMatrix]
    bits: list[float]


@dataclass
class Measurements:
    """Everything measured on one model; what could not be is missing, and a note says why.

    :param paths_of: stack and number of the sentence whose paths were measured
    """

    parameters: int
    operations: int
    stage_weights: list[StageWeights] = field(default_factory=list)
    histories: dict[str, list[list[float]]] = field(default_factory=dict)
    gradient_norms: dict[str, list[float]] = field(default_factory=dict)
    activation_norms: dict[str, list[float]] = field(default_factory=dict)
    errors: list[BlockErrors] = field(default_factory=list)
    paths_of: tuple[str, int] | None = None
    paths: dict[str, DepthPath] = field(default_factory=dict)
    sentences: list[MeasuredSentence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measure_run(run: ReportedRun, split: str, count: int, numbers: Sequence[int] | None) -> Measurements:
    """Measure the model of a run that has a checkpoint and data.

    :param split: split of the data, of which the first ``count`` sentences are measured
    :param numbers: chosen sentences, from 1 on; None for the first ``CHOSEN``
    """
    checkpoint, data = run.checkpoint, run.data
    assert checkpoint is not None
    assert data is not None
    trained = load_trained_model(checkpoint, data, language_model=True)
    model = trained.model
    parameters = sum(parameter.numel() for parameter in model.parameters())
    sentences = Split(trained, data, split)
    result = Measurements(parameters, count_forward_operations(model))
    total = len(sentences.lengths)
    numbers = range(1, min(CHOSEN, total) + 1) if numbers is None else numbers
    check_within("--lines", numbers, total)
    chosen = [number for number in numbers if not sentences.too_long[number - 1]]
    if left_out := [number for number in numbers if number not in chosen]:
        result.notes.append(f"left out, longer than the model reads: sentence {', '.join(map(str, left_out))}")
    if not depth_stacks(model):
        result.notes.append(f"the layers of fairseq's class {type(model).__name__} cannot be observed")
    else:
        measure_depth(result, model, sentences, count, chosen)
    result.sentences = [measure_sentence(model.float(), sentences, number) for number in chosen]
    for sentence in result.sentences:
        if not sentence.attention:
            result.notes.append(f"no attention of sentence {sentence.number}: more than {LONGEST_MAP} tokens")
    return result


def measure_depth(result: Measurements, model: Any, split: Split, count: int, chosen: Sequence[int]) -> None:
    """Add the measurements of layers, means over the first ``count`` sentences."""
    samples = [split.sample(numbers) for numbers in split.batches(count, MAX_TOKENS)]
    result.stage_weights = stage_weights(model, samples)
    result.gradient_norms = gradient_norms(model, samples)
    result.activation_norms = activation_norms(model, samples)
    reasons = refusals(model)
    tableaus = {scheme: get_tableau(scheme) for scheme in SCHEMES}
    for name, stack in depth_stacks(model).items():
        if stack.history is not None:
            result.histories[name] = [
                [float(torch.as_tensor(weight).detach()) for weight in stack.history.weights(depth)]
                for depth in range(len(stack.layers) + 1)
            ]
        if reasons[name] is None and not result.paths and chosen:
            sample = split.sample([chosen[0] - 1])
            result.paths_of = name, chosen[0]
            result.paths = depth_paths(model, name, sample, tableaus)
    unmeasured = {name: reason for name, reason in reasons.items() if reason}
    result.notes += [f"no paths and truncation errors of the {name}: {reason}" for name, reason in unmeasured.items()]
    if None in reasons.values():
        flow_samples = [split.sample(numbers) for numbers in split.batches(min(count, FLOW_SENTENCES), MAX_TOKENS)]
        result.errors = block_errors(model.double(), flow_samples, tableaus, [1], FLOW_TOLERANCE, FLOW_STEPS)
        model.float()


def measure_sentence(model: Any, split: Split, number: int) -> MeasuredSentence:
    """Measure one sentence, read with its reference as the target."""
    sample, (row,) = split.sample([number - 1]), split.rows([number - 1])
    tokens = axis_tokens(row, split.dictionaries)
    if not hasattr(model, "encoder"):
        tokens["prefix"] = tokens["source"]  # a language model's source is what it has read
    weights, maps = word_weights(model, sample), attention(model, sample, tokens)
    return MeasuredSentence(number, tokens, weights, maps, surprisals(model, sample))
