"""Trained models as fairseq's, with their tasks, from a checkpoint and the folder of its dictionaries."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.reading import load_checkpoint, saved_options
from ode_transformer.models.pretrained import build_model
from ode_transformer.support.errors import UserError


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
    :raises UserError: the checkpoint is broken, a dictionary is missing, or they do not belong together
    """
    warnings.filterwarnings("ignore", message="'pin_memory'")  # fairseq asks for it with or without a GPU
    state = load_checkpoint(path) if state is None else state
    saved = saved_options(state, "task")
    hint = f" (the training read {saved['data']})" if saved.get("data") else ""
    languages = {"source_lang": source, "target_lang": target}
    overrides = {"data": str(data)} | {side: language for side, language in languages.items() if language}
    overrides |= changes or {}
    import ode_transformer.models  # noqa: F401  (registers the architectures; slow, so after what is refused)

    try:
        model, options, task = build_model(path, state, overrides)
    except FileNotFoundError as error:
        folder = f"give its folder as DATA or --data{hint}"
        raise UserError(f"{error.filename}: missing, a dictionary of {path}: {folder}") from error
    except UserError as error:
        if "Could not infer language pair" not in str(error):
            raise
        folder = f"ode-transformer translate DATA --path {path}{hint}"
        raise UserError(f"{data}: no dictionaries of {path}; name their folder: {folder}") from error
    return model.eval(), options, task
