"""Tasks that are added to fairseq's.

joint_translation is translation for models over a source × target grid: no training pair has more grid positions than
the model allows. The grid of a single pair cannot be divided. With ``--task translation`` a training fails at the batch
with too large a pair; this task checks all sizes before the first update, and stops there or skips such pairs.

symmetric_sentence_prediction is for pairs without an order. The released Macaron Net trains MRPC, STS-B and QQP so
(``--symmetric``): whenever a training pair is read, its texts change places with probability ½. Development and test
pairs keep their order.
"""

import copy
import logging
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fairseq.data import BaseWrapperDataset, FairseqDataset, data_utils
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from ode_transformer.support.errors import OptionError

logger = logging.getLogger(__name__)


# fairseq reads the types of options from the fields themselves: no ``from __future__ import annotations`` here.
@dataclass
class JointTranslationConfig(TranslationConfig):
    joint_cells_overflow: ChoiceEnum(("stop", "skip")) = field(  # type: ignore[valid-type]
        default="stop",
        metadata={"help": "sentence pairs of more than --max-joint-cells: stop the training, or skip them"},
    )


@register_task("joint_translation", dataclass=JointTranslationConfig)
class JointTranslationTask(TranslationTask):
    """fairseq's translation task with a limit on the grid of training pairs; without gradients any pair fits."""

    max_joint_cells = 0  # set when a model is built for training

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and note its limit of grid positions."""
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            self.max_joint_cells = getattr(cfg, "max_joint_cells", 0)
            if not self.max_joint_cells and self.cfg.joint_cells_overflow == "skip":
                logger.warning("--joint-cells-overflow skip: this model has no limit, nothing is left out")
        return model

    def filter_indices_by_size(
        self, indices: np.ndarray, dataset: Any, max_positions: Any = None, ignore_invalid_inputs: bool = False
    ) -> np.ndarray:
        """Remove pairs that are too long for the model, as fairseq does, and training pairs of too large a grid.

        :raises OptionError: there are pairs of too large a grid, and ``--joint-cells-overflow`` is not ``skip``
        """
        indices = super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        if not self.max_joint_cells or dataset is not self.datasets.get(self.cfg.train_subset):
            return indices
        positions = dataset.src_sizes[indices].astype(np.int64) * dataset.tgt_sizes[indices]
        large = indices[positions > self.max_joint_cells]
        if not len(large):
            return indices
        largest = indices[positions.argmax()]
        description = (
            f"{len(large):,} of {len(indices):,} sentence pairs have more grid positions than --max-joint-cells "
            f"{self.max_joint_cells:,}, the largest (number {largest}) {dataset.src_sizes[largest]} × "
            f"{dataset.tgt_sizes[largest]}"
        )
        if self.cfg.joint_cells_overflow == "stop":
            raise OptionError(f"{description}: raise it, or skip them with --joint-cells-overflow skip")
        logger.warning(f"{description}: skipped")
        return indices[positions <= self.max_joint_cells]


@dataclass
class SymmetricSentencePredictionConfig(SentencePredictionConfig):
    train_subset: str = II("dataset.train_subset")


@register_task("symmetric_sentence_prediction", dataclass=SymmetricSentencePredictionConfig)
class SymmetricSentencePredictionTask(SentencePredictionTask):
    """fairseq's task sentence_prediction with training pairs in random order."""

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load a split, the one for training in both orders of its pairs."""
        dataset = super().load_dataset(split, combine, **kwargs)
        if split != (getattr(self.cfg, "train_subset", None) or "train"):  # old checkpoints do not have it
            return dataset
        data = os.path.abspath(self.cfg.data)
        self._links = tempfile.TemporaryDirectory()  # kept: some formats open their files when they are first read
        for name, content in (("input0", "input1"), ("input1", "input0"), ("label", "label")):
            os.symlink(os.path.join(data, content), os.path.join(self._links.name, name))
        cfg = copy.copy(self.cfg)
        cfg.data = self._links.name
        other_order = SentencePredictionTask(cfg, self.dictionary, self._label_dictionary)
        swapped = other_order.load_dataset(split, combine, **kwargs)
        self.datasets[split] = RandomOrderPairs(dataset, swapped, self.cfg.seed)
        return self.datasets[split]


class RandomOrderPairs(BaseWrapperDataset):
    """Pairs of which each is read in its order or in the other, drawn anew for every epoch."""

    def __init__(self, pairs: FairseqDataset, swapped: FairseqDataset, seed: int) -> None:
        super().__init__(pairs)
        self.swapped, self.seed = swapped, seed
        self.set_epoch(1)

    def __getitem__(self, index: int) -> Any:
        return self.swapped[index] if self.in_other_order[index] else self.dataset[index]

    def prefetch(self, indices: Any) -> None:
        """Read pairs of a format that reads them beforehand."""
        self.dataset.prefetch(indices)
        self.swapped.prefetch(indices)

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of every pair."""
        super().set_epoch(epoch)
        with data_utils.numpy_seed(self.seed, epoch):
            self.in_other_order = np.random.rand(len(self)) < 0.5
