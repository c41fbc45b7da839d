"""Measurements on the model of a run: its size, its depth, and chosen sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ode_transformer.analysis.comparison.attention_by_head import attention_by_head
from ode_transformer.analysis.comparison.attention_plots import drawn_map
from ode_transformer.analysis.depth import block_flows, depth_paths
from ode_transformer.analysis.depth.activation_norms import activation_norms
from ode_transformer.analysis.depth.block_flows import BlockErrors, block_errors
from ode_transformer.analysis.depth.coefficients import StageWeights, StageWeightsObserver, stage_weights
from ode_transformer.analysis.depth.depth_paths import DepthPath
from ode_transformer.analysis.depth.gradient_norms import gradient_norms
from ode_transformer.decoding.attention_maps import attention_maps
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import surprisals
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.models.operation_count import count_forward_operations
from ode_transformer.nn.layer_history import LayerHistory
from ode_transformer.nn.observers import observable_stacks, observing
from ode_transformer.nn.sublayers import SubLayerKind
from ode_transformer.numerics import get_tableau
from ode_transformer.report.runs import ReportedRun
from ode_transformer.support.errors import UserError

SCHEMES = ("euler", "rk2", "rk4")
MAX_TOKENS = 2048  # of a batch
# The solutions of truncation errors are found in double precision, so that few sentences have to do.
CHOSEN = 3  # sentences for attention and depth, unless the user names some
FLOW_SENTENCES, FLOW_TOLERANCE, FLOW_STEPS = 4, 1e-3, 64
VARYING = 0.005  # standard deviation over the tokens from which on weights are shown by token
LONGEST_MAP = 80  # tokens; the map of a longer sentence could not be read


@dataclass(frozen=True)
class AttentionMatrix:
    """Attention weights of a sentence.

    :param title: layer and kind
    :param rows: tokens that attend
    :param columns: tokens that are attended to
    :param heads: weights of each head, [H, rows, columns]
    """

    title: str
    rows: list[str]
    columns: list[str]
    heads: Tensor


@dataclass(frozen=True)
class WordWeights:
    """Stage weights at each token.

    :param block: such as ``encoder layer 1``
    :param weights: [stages, tokens]
    """

    block: str
    weights: Tensor


@dataclass(frozen=True)
class MeasuredSentence:
    """A sentence as one model sees it.

    :param number: in its split, from 1 on
    :param tokens: of each side, with the end symbol
    :param word_weights: of the blocks whose stages' weights differ from token to token
    :param bits: surprisal of each target token
    """

    number: int
    tokens: Mapping[str, list[str]]
    word_weights: list[WordWeights]
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
    :raises UserError: the checkpoint or the data cannot be read, or a chosen sentence is not there
    """
    checkpoint, data = run.checkpoint, run.data
    assert checkpoint is not None
    assert data is not None
    model, _, task = load_trained_model(checkpoint, data, language_model=True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    sentences = Split(model, task, data, split, checkpoint)
    result = Measurements(parameters, count_forward_operations(model))
    if numbers is None:
        numbers = range(1, min(CHOSEN, len(sentences.lengths)) + 1)
    for number in numbers:
        if number > len(sentences.lengths):
            raise UserError(f"--lines {number}: the sentences of {split} are 1 to {len(sentences.lengths)}")
    chosen = [number for number in numbers if not sentences.too_long[number - 1]]
    if len(chosen) < len(numbers):
        left_out = [number for number in numbers if number not in chosen]
        result.notes.append(f"left out, longer than the model reads: sentence {', '.join(map(str, left_out))}")
    if not observable_stacks(model):
        result.notes.append(f"the layers of fairseq's class {type(model).__name__} cannot be observed")
    else:
        measure_depth(result, model, task, sentences, count, chosen)
    result.sentences = [measure_sentence(model.float(), task, sentences, number) for number in chosen]
    for sentence in result.sentences:
        if not sentence.attention:
            result.notes.append(f"no attention of sentence {sentence.number}: more than {LONGEST_MAP} tokens")
    return result


def measure_depth(result: Measurements, model: Any, task: Any, split: Split, count: int, chosen: Sequence[int]) -> None:
    """Add the measurements of layers, means over the first ``count`` sentences."""
    samples = [split.sample(numbers) for numbers in split.batches(count, MAX_TOKENS)]
    result.stage_weights = stage_weights(model, [sample["net_input"] for sample in samples])
    result.gradient_norms = gradient_norms(model, samples, task.source_dictionary.pad())
    result.activation_norms = activation_norms(model, samples)
    reasons = block_flows.refusals(model)
    tableaus = {scheme: get_tableau(scheme) for scheme in SCHEMES}
    for name, stack in observable_stacks(model).items():
        if isinstance(stack.scheme, LayerHistory):
            result.histories[name] = [
                [float(torch.as_tensor(weight).detach()) for weight in stack.scheme.weights(depth)]
                for depth in range(len(stack.layers) + 1)
            ]
        if reasons[name] is None and not result.paths and chosen:
            sample = split.sample([chosen[0] - 1])
            result.paths_of = name, chosen[0]
            result.paths = depth_paths.depth_paths(model, name, sample, tableaus)
    result.notes += [
        f"no paths and truncation errors of the {name}: {reason}" for name, reason in reasons.items() if reason
    ]
    if None in reasons.values():
        flow_samples = [split.sample(numbers) for numbers in split.batches(min(count, FLOW_SENTENCES), MAX_TOKENS)]
        result.errors = block_errors(model.double(), flow_samples, tableaus, [1], FLOW_TOLERANCE, FLOW_STEPS)
        model.float()


def measure_sentence(model: Any, task: Any, split: Split, number: int) -> MeasuredSentence:
    """Measure one sentence, read with its reference as the target.

    :param number: in the split, from 1 on
    """
    sample, (row,) = split.sample([number - 1]), split.rows([number - 1])
    dictionaries = {"source": task.source_dictionary, "target": task.target_dictionary}
    tokens = {side: [dictionary[int(t)] for t in row[side]] for side, dictionary in dictionaries.items()}
    # A language model's source is what it has read; a translation model reads its target shifted by one.
    shifted = tokens["target"][-1:] + tokens["target"][:-1]
    tokens["prefix"] = shifted if hasattr(model, "encoder") else tokens["source"]
    weights, maps = word_weights(model, sample), attention(model, sample, number, tokens)
    return MeasuredSentence(number, tokens, weights, maps, surprisals(model, sample))


def readable_tokens(tokens: Sequence[str]) -> list[str]:
    """Return tokens without the sign that begins a word of sentencepiece; a dot marks the pieces within a word."""
    if not any(token.startswith("▁") for token in tokens):
        return list(tokens)
    return [
        token.removeprefix("▁") or "▁" if token.startswith(("▁", "<")) or not token[:1].isalnum() else f"·{token}"
        for token in tokens
    ]


@torch.no_grad()
def word_weights(model: Any, sample: Mapping[str, Any], only_varying: bool = True) -> list[WordWeights]:
    """Return the stage weights of each block at each token of a sentence; a block of a grid has none at a token.

    :param only_varying: leave out the blocks whose weights are nearly the same at all tokens
    """
    observer, texts = StageWeightsObserver(), sample["net_input"]
    with observing(model, observer):
        model(**texts)
    source = texts["src_tokens"]
    tokens = {"encoder": source.numel(), "decoder": texts.get("prev_output_tokens", source).numel()}
    weights = {block: torch.cat(rows, dim=1) for block, rows in observer.weights.items()}
    return [
        WordWeights(str(block), rows)
        for block, rows in weights.items()
        if rows.size(1) == tokens[block.stack] and (not only_varying or float(rows.std(dim=1).max()) > VARYING)
    ]


def attention(model: Any, sample: dict[str, Any], number: int, tokens: dict[str, list[str]]) -> list[AttentionMatrix]:
    """Return all attention maps of a sentence; none if it is too long to be read."""
    if max(map(len, tokens.values())) > LONGEST_MAP:
        return []
    if hasattr(model, "attention_maps") or not observable_stacks(model):  # a grid, or a model of fairseq's own
        maps = [drawn_map(number, title, entry, tokens) for title, entry in attention_maps(model, sample).items()]
        return [AttentionMatrix(m.title, *m.tokens, m.weights.unsqueeze(0)) for m in maps]
    matrices = []
    for (layer, kind), heads in attention_by_head(model, sample).items():
        rows = tokens["source" if layer.stack == "encoder" else "prefix"]
        columns = tokens["source"] if kind is SubLayerKind.CROSS_ATTENTION else rows
        sides = readable_tokens(rows), readable_tokens(columns)
        matrices.append(AttentionMatrix(f"{layer}: {kind.value}", *sides, heads))
    return matrices
