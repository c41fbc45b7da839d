"""Criteria whose training steps are recorded as CUDA graphs (``--cuda-graphs``)."""

import logging
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II
from torch import Tensor

from ode_transformer.graphs import UNRECORDED_BATCH, RecordedTraining, log_shares, unrecorded_reason
from ode_transformer.models.depth_stack import DepthStack
from ode_transformer.support.arguments import flag_name

logger = logging.getLogger(__name__)


# fairseq reads the types of options from the fields themselves: no ``from __future__ import annotations`` here.
@dataclass
class RecordingConfig(FairseqDataclass):
    """Options of recorded criteria."""

    cuda_graphs: bool = field(
        default=False, metadata={"help": "record training steps as CUDA graphs, in which no Python runs"}
    )
    use_bmuf: Any = II("optimization.use_bmuf")
    zero_sharding: Any = II("distributed_training.zero_sharding")


class RecordedCriterion(FairseqCriterion):
    """Base of a criterion, before a class of fairseq; without ``--cuda-graphs`` it changes nothing."""

    padding_idx: int
    sentence_avg: bool
    cuda_graphs = False
    unsuitable_reason: str | None = None
    recorded: RecordedTraining | None = None
    stacks: list[DepthStack]

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "RecordedCriterion":
        """Build the criterion from fairseq's options."""
        criterion: RecordedCriterion = super().build_criterion(cfg, task)
        criterion.cuda_graphs = getattr(cfg, "cuda_graphs", False)
        for name, off in (("use_bmuf", False), ("zero_sharding", "none")):
            if getattr(cfg, name, off) not in (off, None):
                criterion.unsuitable_reason = f"it does not go with {flag_name(name)}"
        return criterion

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
        self.stacks = [module for module in model.modules() if isinstance(module, DepthStack)]
        reason = self.unsuitable_reason or unrecorded_reason(model)
        if not self.stacks:
            reason = "it records models of ode_transformer alone"
        if reason is None:
            self.recorded = RecordedTraining(model, self.padding_idx, training_lengths(self.task))
        else:
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
        log_shares(logging_outputs)


def training_lengths(task: Any) -> np.ndarray:
    """Return the lengths of all sentences of a task's training data; empty if the task does not tell them."""
    subset = getattr(getattr(task, "cfg", None), "train_subset", "train")
    sizes = getattr(getattr(task, "datasets", {}).get(subset), "sizes", ())
    return np.asarray(sizes, dtype=np.int64).ravel()
