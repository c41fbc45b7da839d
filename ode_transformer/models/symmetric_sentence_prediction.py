"""Sentence prediction for pairs without an order: in training, each pair is read in one order or the other by chance.

The released Macaron Net trains MRPC, STS-B and QQP so (``--symmetric``): whenever a training pair is read, its texts
change places with probability ½. Development and test pairs keep their order.
"""

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from fairseq.data import BaseWrapperDataset, FairseqDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from omegaconf import II

from ode_transformer.support.errors import OptionError


@dataclass
class SymmetricSentencePredictionConfig(SentencePredictionConfig):
    """Options of the task."""

    train_subset: str = II("dataset.train_subset")


@register_task("symmetric_sentence_prediction", dataclass=SymmetricSentencePredictionConfig)
class SymmetricSentencePredictionTask(SentencePredictionTask):
    """fairseq's task sentence_prediction with training pairs in random order."""

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load a split.

        :raises OptionError: the data have single texts
        """
        dataset = super().load_dataset(split, combine, **kwargs)
        if split != (getattr(self.cfg, "train_subset", None) or "train"):  # old checkpoints do not have it
            return dataset
        data = os.path.abspath(self.cfg.data)
        if not os.path.isdir(os.path.join(data, "input1")):
            raise OptionError(f"--task symmetric_sentence_prediction: {data} has no input1, and so no pairs")
        self._links = tempfile.TemporaryDirectory()  # kept: some formats open their files when they are first read
        for name, content in (("input0", "input1"), ("input1", "input0"), ("label", "label")):
            os.symlink(os.path.join(data, content), os.path.join(self._links.name, name))
        self.cfg.data = self._links.name
        try:
            swapped = super().load_dataset(split, combine, **kwargs)
        finally:
            self.cfg.data = data
        self.datasets[split] = RandomOrderPairs(dataset, swapped, self.cfg.seed)
        return self.datasets[split]


class RandomOrderPairs(BaseWrapperDataset):
    """Pairs of which each is read in its order or in the other, drawn anew for every epoch.

    :param pairs: the pairs in their order
    :param swapped: the same pairs in the other order
    :param seed: of the draws
    """

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
