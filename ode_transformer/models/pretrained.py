"""``from_pretrained`` of the models that a beam search decodes."""

from __future__ import annotations

import os
from typing import Any

from fairseq.hub_utils import GeneratorHubInterface

from ode_transformer.checkpoints.reading import load_pretrained


class SafeFromPretrained:
    """``from_pretrained`` of a model, whose files are checked before anything is built from them."""

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str | os.PathLike[str],
        checkpoint_file: str = "model.pt",
        data_name_or_path: str | os.PathLike[str] = ".",
        **kwargs: Any,
    ) -> GeneratorHubInterface:
        """Load a model from a folder, for translating and scoring as with fairseq's own models.

        :raises UserError: a checkpoint is broken or refused
        """
        hub = GeneratorHubInterface(*load_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs))
        for model in hub.models:
            model.decoder.reports_alignment = True  # a later call may ask for alignments
        return hub
