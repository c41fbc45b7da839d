"""Translation for models that span a source × target grid: no pair of the training has more cells than they allow.

The grid of a pair cannot be divided. ``--task translation`` notices one that is too large when its batch comes; this
task looks at all sizes before the first update, and stops there or leaves such pairs out.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

logger = logging.getLogger(__name__)

OVERFLOWS = ("stop", "skip")


# fairseq reads the types of options from the fields themselves: no ``from __future__ import annotations`` here.
@dataclass
class JointTranslationConfig(TranslationConfig):
    """Adds what happens to pairs of more than ``--max-joint-cells`` cells."""

    joint_cells_overflow: ChoiceEnum(OVERFLOWS) = field(
        default="stop",
        metadata={"help": "sentence pairs of more than --max-joint-cells: stop the training, or skip them"},
    )


@register_task("joint_translation", dataclass=JointTranslationConfig)
class JointTranslationTask(TranslationTask):
    """fairseq's translation task, whose training data fit the model's grid; what keeps no gradients takes any pair."""

    max_joint_cells = 0  # until a model is built that is to be trained

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            self.max_joint_cells = getattr(cfg, "max_joint_cells", 0)
            if not self.max_joint_cells and self.cfg.joint_cells_overflow == "skip":
                logger.warning("--joint-cells-overflow skip: this model has no limit of cells, nothing is left out")
        return model

    def filter_indices_by_size(
        self, indices: np.ndarray, dataset: Any, max_positions: Any = None, ignore_invalid_inputs: bool = False
    ) -> np.ndarray:
        """Leaves out pairs that are too long for the model, as always, and then training pairs of too many cells.

        :raises ValueError: if there are any of the latter, unless they are to be skipped
        """
        indices = super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        if not self.max_joint_cells or dataset is not self.datasets.get(self.cfg.train_subset):
            return indices
        cells = dataset.src_sizes[indices].astype(np.int64) * dataset.tgt_sizes[indices]
        large = indices[cells > self.max_joint_cells]
        if not len(large):
            return indices
        largest = indices[cells.argmax()]
        found = (
            f"{len(large):,} of {len(indices):,} sentence pairs have more cells than --max-joint-cells "
            f"{self.max_joint_cells:,}, the largest (number {largest}) {dataset.src_sizes[largest]} × "
            f"{dataset.tgt_sizes[largest]}"
        )
        if self.cfg.joint_cells_overflow == "stop":
            raise ValueError(f"{found}: raise it, or leave them out by --joint-cells-overflow skip")
        logger.warning(f"{found}: left out")
        return indices[cells <= self.max_joint_cells]
