"""Translation task for models over a source × target grid: no training pair has more cells than the model allows.

The grid of a single pair cannot be divided. With ``--task translation`` a training fails at the batch with too large a
pair; this task checks all sizes before the first update, and stops there or skips such pairs.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ode_transformer.support.errors import OptionError

logger = logging.getLogger(__name__)

OVERFLOWS = ("stop", "skip")


# fairseq reads the types of options from the fields themselves: no ``from __future__ import annotations`` here.
@dataclass
class JointTranslationConfig(TranslationConfig):
    """Options of the task."""

    joint_cells_overflow: ChoiceEnum(OVERFLOWS) = field(  # type: ignore[valid-type]
        default="stop",
        metadata={"help": "sentence pairs of more than --max-joint-cells: stop the training, or skip them"},
    )


@register_task("joint_translation", dataclass=JointTranslationConfig)
class JointTranslationTask(TranslationTask):
    """fairseq's translation task with a limit on the cells of training pairs; without gradients any pair fits."""

    max_joint_cells = 0  # set when a model is built for training

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and note its limit of cells."""
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            self.max_joint_cells = getattr(cfg, "max_joint_cells", 0)
            if not self.max_joint_cells and self.cfg.joint_cells_overflow == "skip":
                logger.warning("--joint-cells-overflow skip: this model has no limit of cells, nothing is left out")
        return model

    def filter_indices_by_size(
        self, indices: np.ndarray, dataset: Any, max_positions: Any = None, ignore_invalid_inputs: bool = False
    ) -> np.ndarray:
        """Remove pairs that are too long for the model, as fairseq does, and training pairs with too many cells.

        :raises OptionError: there are pairs with too many cells, and ``--joint-cells-overflow`` is not ``skip``
        """
        indices = super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        if not self.max_joint_cells or dataset is not self.datasets.get(self.cfg.train_subset):
            return indices
        cells = dataset.src_sizes[indices].astype(np.int64) * dataset.tgt_sizes[indices]
        large = indices[cells > self.max_joint_cells]
        if not len(large):
            return indices
        largest = indices[cells.argmax()]
        description = (
            f"{len(large):,} of {len(indices):,} sentence pairs have more cells than --max-joint-cells "
            f"{self.max_joint_cells:,}, the largest (number {largest}) {dataset.src_sizes[largest]} × "
            f"{dataset.tgt_sizes[largest]}"
        )
        if self.cfg.joint_cells_overflow == "stop":
            raise OptionError(f"{description}: raise it, or skip them with --joint-cells-overflow skip")
        logger.warning(f"{description}: skipped")
        return indices[cells <= self.max_joint_cells]
