"""Trained models as fairseq's, with their tasks, from a checkpoint and the folder of its dictionaries."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.models.pretrained import build_model


def load_trained_model(
    path: Path,
    data: Path,
    source: str | None = None,
    target: str | None = None,
    changes: Mapping[str, str] | None = None,
    state: Mapping[str, Any] | None = None,
) -> tuple[Any, Any, Any]:
    """Load fairseq's model, in evaluation mode, its options and its task.

    :param data: folder with ``dict.<language>.txt`` of both languages, or with ``dict.txt`` of a language model
    :param source: source language; by default that of the checkpoint, or of the file names in ``data``
    :param target: target language, likewise
    :param changes: options in the place of saved ones
    :param state: what was read of the checkpoint already
    :raises UserError: the checkpoint is broken or refused, or does not belong to its dictionaries
    """
    warnings.filterwarnings("ignore", message="'pin_memory'")  # fairseq asks for it with or without a GPU
    state = load_checkpoint(path) if state is None else state
    languages = {"source_lang": source, "target_lang": target}
    overrides = {"data": str(data)} | {side: language for side, language in languages.items() if language}
    model, options, task = build_model(path, state, overrides | dict(changes or {}))
    return model.eval(), options, task
