"""fairseq's cross entropies with one softmax for loss and gradient, whose steps are recorded by ``--cuda-graphs``.

Models have a decoder that returns logits. Where something else needs the logarithms of all probabilities, such as an
adaptive softmax, ``--log-depth-interval`` at the updates that it observes, or ``--report-accuracy``, fairseq's own
computation of them is used.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from fairseq import criterions
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import FairseqDecoder
from omegaconf import II
from torch import Tensor

from ode_transformer.models.stacks import FairseqStack
from ode_transformer.speed import record_training
from ode_transformer.speed.losses import label_smoothed_cross_entropy
from ode_transformer.speed.training import COUNTS, UNRECORDED_BATCH, RecordedTraining
from ode_transformer.support.arguments import flag_name

logger = logging.getLogger(__name__)

# Value of --optimizer or --criterion -> fairseq's counterpart, whose checkpoints it resumes, and the other way round.
COUNTERPARTS = {
    "fused_adam": "adam",
    "fused_label_smoothed_cross_entropy": "label_smoothed_cross_entropy",
    "fused_cross_entropy": "cross_entropy",
    "fused_masked_lm": "masked_lm",
}


def only_logits_matter(decoder: Any) -> bool:
    """Tell whether the decoder's probabilities are a softmax of what it returns, which nobody else wants to see."""
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return False
    inherits = getattr(type(decoder), "get_normalized_probs", None) is FairseqDecoder.get_normalized_probs
    return not getattr(decoder, "is_observed", not inherits)


# fairseq reads the types of options from the fields themselves: no ``from __future__ import annotations`` here.
@dataclass
class RecordingConfig(FairseqDataclass):
    cuda_graphs: bool = field(
        default=False, metadata={"help": "record training steps as CUDA graphs, in which no Python runs"}
    )
    use_bmuf: Any = II("optimization.use_bmuf")
    zero_sharding: Any = II("distributed_training.zero_sharding")


class FusedCriterion(FairseqCriterion):
    """Base of a criterion, before a class of fairseq."""

    padding_idx: int
    sentence_avg: bool
    eps = 0.0  # of label smoothing
    ignore_prefix_size = 0  # positions at the beginning of each target that count nothing
    cuda_graphs = False
    unsuitable_reason: str | None = None
    recorded: RecordedTraining | None = None
    stacks: list[FairseqStack]

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "FusedCriterion":
        criterion: FusedCriterion = super().build_criterion(cfg, task)
        criterion.cuda_graphs = getattr(cfg, "cuda_graphs", False)
        for name, off in (("use_bmuf", False), ("zero_sharding", "none")):
            if getattr(cfg, name, off) not in (off, None):
                criterion.unsuitable_reason = f"it does not go with {flag_name(name)}"
        return criterion

    def compute_loss(
        self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the negative log-likelihood, summed if ``reduce``."""
        if not only_logits_matter(getattr(model, "decoder", None)):
            return super().compute_loss(model, net_output, sample, reduce)
        logits = net_output[0][:, self.ignore_prefix_size :]  # [B, T, V]
        target = model.get_targets(sample, net_output)[:, self.ignore_prefix_size :]  # [B, T]
        loss, nll = label_smoothed_cross_entropy(logits.flatten(0, 1), target.flatten(), self.padding_idx, self.eps)
        return (loss.sum(), nll.sum()) if reduce else (loss, nll)

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, Any, dict[str, Any]]:
        """Return the loss of a batch, its sample size, and what is logged."""
        if not (self.cuda_graphs and model.training):
            return super().forward(model, sample, reduce)
        if self.recorded is None:
            self._begin(model)
        if self.recorded is None or not (reduce and self.is_recordable(self.recorded, sample)):
            loss, size, log = super().forward(model, sample, reduce)
            return loss, size, log | UNRECORDED_BATCH
        counts = self.counts(sample)
        loss, results = self.recorded.compute(partial(self.step, model), self.inputs(sample))
        return loss, counts["sample_size"], {"loss": loss.detach(), **results, **counts}

    def _begin(self, model: Any) -> None:
        """Begin to record the training, or say why not."""
        self.stacks = [module for module in model.modules() if isinstance(module, FairseqStack)]
        subset = getattr(getattr(self.task, "cfg", None), "train_subset", "train")
        sizes = getattr(getattr(self.task, "datasets", {}).get(subset), "sizes", ())  # a task may not tell them
        try:
            if not self.stacks:
                raise ValueError("it records models of ode_transformer alone")
            if self.unsuitable_reason is not None:
                raise ValueError(self.unsuitable_reason)
            self.recorded = record_training(model, self.padding_idx, np.asarray(sizes, dtype=np.int64).ravel())
        except ValueError as reason:
            self.cuda_graphs = False
            logger.warning(f"--cuda-graphs: this training runs unrecorded: {reason}")

    def is_recordable(self, recorded: RecordedTraining, sample: dict[str, Any]) -> bool:
        """Tell whether a replay of the batch would compute what an unrecorded step computes."""
        net_input = sample["net_input"]
        if not recorded.recordable(net_input):
            return False
        shapes = recorded.padded_shapes({name: x for name, x in net_input.items() if x.dim() > 1}).values()
        positions = max(rows for rows, _ in shapes) * prod(length for _, length in shapes)
        return all(stack.is_replayable(positions) for stack in self.stacks)

    def inputs(self, sample: dict[str, Any]) -> dict[str, Tensor]:
        """Return the tensors that a step reads."""
        return {**sample["net_input"], "target": sample["target"]}

    def counts(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers of a batch without the padding of its recording."""
        tokens, sentences = sample["ntokens"], len(sample["target"])
        size = sentences if self.sentence_avg else tokens
        return {"ntokens": tokens, "nsentences": sentences, "sample_size": size}

    def step(self, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss from :meth:`inputs`, and what else is logged."""
        net_input = {name: x for name, x in inputs.items() if name != "target"}
        sample = {"net_input": net_input, "target": inputs["target"], "ntokens": 1}
        loss, _, log = super().forward(model, sample)
        return loss, {name: x for name, x in log.items() if isinstance(x, Tensor) and name != "loss"}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log what fairseq's criterion logs, and the shares of replays and padding."""
        super().reduce_metrics(logging_outputs)
        _log_shares(logging_outputs)


def _log_shares(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Log the share of replayed batches, the padding added to each symbol of them, and the seconds of recording."""
    sums = {name: sum(log.get(f"graph_{name}", 0) for log in logging_outputs) for name in COUNTS}
    batches, replays, symbols, padded, seconds = sums.values()
    if batches > 0:
        metrics.log_scalar("replayed", replays / batches, batches, round=3)
        metrics.log_scalar_sum("recording_s", seconds, round=1)
    if symbols > 0:
        metrics.log_scalar("padding", padded / symbols - 1, symbols, round=3)


@dataclass
class LabelSmoothedConfig(
    RecordingConfig, criterions.label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterionConfig
):
    """Options of ``fused_label_smoothed_cross_entropy``."""


@dataclass
class CrossEntropyConfig(RecordingConfig, criterions.cross_entropy.CrossEntropyCriterionConfig):
    """Options of ``fused_cross_entropy``."""


@dataclass
class MaskedLmConfig(RecordingConfig, criterions.masked_lm.MaskedLmConfig):
    """Options of ``fused_masked_lm``."""


# fairseq resumes a training only with a criterion of the same class name; either of the two can resume the other's.
@register_criterion("fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedConfig)
class LabelSmoothedCrossEntropyCriterion(
    FusedCriterion, criterions.label_smoothed_cross_entropy.LabelSmoothedCrossEntropyCriterion
):
    """fairseq's ``label_smoothed_cross_entropy``, with one softmax for loss and gradient."""

    def is_recordable(self, recorded: RecordedTraining, sample: dict[str, Any]) -> bool:
        return not self.report_accuracy and super().is_recordable(recorded, sample)


@register_criterion("fused_cross_entropy", dataclass=CrossEntropyConfig)
class CrossEntropyCriterion(FusedCriterion, criterions.cross_entropy.CrossEntropyCriterion):
    """fairseq's ``cross_entropy``, with one softmax for loss and gradient."""


@register_criterion("fused_masked_lm", dataclass=MaskedLmConfig)
class MaskedLmLoss(FusedCriterion, criterions.masked_lm.MaskedLmLoss):
    """fairseq's ``masked_lm``; a recorded step has one softmax, and a padded list of the masked positions."""

    def inputs(self, sample: dict[str, Any]) -> dict[str, Tensor]:
        masked = sample["target"].ne(self.padding_idx).sum()
        return super().inputs(sample) | {"masked": sample["target"].new_empty(int(masked))}

    def counts(self, sample: dict[str, Any]) -> dict[str, Any]:
        names = "ntokens", "nsentences"
        return {name: sample[name] for name in names} | {"sample_size": sample["target"].ne(self.padding_idx).sum()}

    def step(self, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss at as many positions as the input ``masked`` is long, which has no values."""
        features = model(inputs["src_tokens"], features_only=True)[0].flatten(0, 1)  # [N, C]
        target = inputs["target"].flatten()  # [N]
        is_masked = target.ne(self.padding_idx)
        ranks = is_masked.cumsum(0)  # 1, 2, … at masked positions
        numbers = torch.arange(len(target), device=target.device)
        # Place 0 collects the other positions.
        positions = target.new_zeros(len(inputs["masked"]) + 1).scatter_(0, ranks * is_masked, numbers)[1:]
        surplus = torch.arange(1, len(positions) + 1, device=target.device) > ranks[-1]
        masked_target = target.index_select(0, positions).masked_fill(surplus, self.padding_idx)
        logits = model.encoder.lm_head(features.index_select(0, positions))  # [masked, words]
        return label_smoothed_cross_entropy(logits, masked_target, self.padding_idx)[0].sum(), {}
