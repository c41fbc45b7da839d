"""A trained translation model with everything that an exported folder needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ode_transformer.decoding.subwords import choose_subword_model
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.support.subword_encoder import SubwordEncoder
from ode_transformer.support.subword_models import SUBWORD_MODELS


@dataclass(frozen=True)
class TranslationModel:
    """A model in evaluation mode, read from a checkpoint that was checked.

    :param path: file of the checkpoint, for messages
    :param model: fairseq's model
    :param options: fairseq's configuration
    :param task: fairseq's task, which has the dictionaries
    :param subword_model: kind, a key of ``SUBWORD_MODELS``, and file; None for text that is divided already
    """

    path: Path
    model: Any
    options: Any
    task: Any
    subword_model: tuple[str, Path] | None

    @property
    def subword_file_name(self) -> str | None:
        """Name that the file of the subword model has in a folder, so that it is recognised there."""
        return None if self.subword_model is None else SUBWORD_MODELS[self.subword_model[0]].file_name


def load_translation_model(
    path: Path,
    data: Path | None,
    source: str | None,
    target: str | None,
    bpe: str | None = None,
    bpe_model: Path | None = None,
) -> TranslationModel:
    """Load a checkpoint as ``ode-transformer translate`` does.

    :param data: folder of the dictionaries; by default the checkpoint's
    :param source: source language, by default that of the checkpoint
    :param target: target language, likewise
    :param bpe: kind of subword model, or none; by default that of the file beside the checkpoint
    :param bpe_model: file of the subword model, likewise
    :raises UserError: a file is missing, broken or refused, or the subword model is unclear
    """
    subword_model = choose_subword_model(bpe, bpe_model, path.parent)
    if subword_model is not None:
        SubwordEncoder(*subword_model)  # refuses a broken file
    model, options, task = load_trained_model(path, data or path.parent, source, target)
    return TranslationModel(path, model, options, task, subword_model)
