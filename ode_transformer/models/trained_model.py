"""Trained models as fairseq's, with their tasks, from a checkpoint and the folder of its dictionaries."""

import warnings
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.reading import load_checkpoint, saved_options
from ode_transformer.models.pretrained import build_model
from ode_transformer.support.errors import UserError

_TRANSLATION = ("translation", "joint_translation")


def load_trained_model(
    path: Path,
    data: Path,
    source: str | None = None,
    target: str | None = None,
    language_model: bool = False,
    scheme: str | None = None,
) -> tuple[Any, Any, Any]:
    """Load fairseq's model, in evaluation mode, its options and its task.

    :param data: folder with ``dict.<language>.txt`` of both languages, or with ``dict.txt`` of a language model
    :param source: source language; by default that of the checkpoint, or of the file names in ``data``
    :param target: target language, likewise
    :param language_model: accept a language model, too
    :param scheme: scheme in place of the encoder's, and of the decoder's if it is the same; None for the trained ones
    :raises UserError: the checkpoint is broken, a dictionary is missing, or they do not belong together
    """
    warnings.filterwarnings("ignore", message="'pin_memory'")  # fairseq asks for it with or without a GPU
    state = load_checkpoint(path)
    saved, saved_model = saved_options(state, "task"), saved_options(state, "model")
    task_name = saved.get("_name") or saved.get("task")
    if task_name not in (*_TRANSLATION, *(("language_modeling",) if language_model else ())):
        kinds = "translation or language_modeling" if language_model else "translation"
        raise UserError(f"{path}: a model of the task {task_name}, not of {kinds}")
    numbers = sum(tensor.numel() for tensor in state["model"].values())
    for stack in {name.partition(".")[0] for name in state["model"]}:
        layers, width = (saved_model.get(f"{stack}_{size}") for size in ("layers", "embed_dim"))
        # An attention alone has four times the width squared.
        if isinstance(layers, int) and isinstance(width, int) and layers * width**2 > numbers:
            raise UserError(f"{path}: refused: its options describe far more parameters than it has")
    hint = f" (the training read {saved['data']})" if saved.get("data") else ""
    languages = {"source_lang": source, "target_lang": target}
    overrides = {"data": str(data)} | {side: language for side, language in languages.items() if language}
    if scheme is not None:
        trained = saved_model.get("encoder_ode_scheme")
        if trained is None:
            raise UserError(f"{path}: its architecture steps no scheme, so it cannot be read under {scheme}")
        schemes = ("encoder_ode_scheme", "decoder_ode_scheme")
        overrides |= {option: scheme for option in schemes if saved_model.get(option) == trained}
    import ode_transformer.models  # noqa: F401  (registers the architectures; slow, so after what is refused)

    try:
        model, options, task = build_model(path, state, overrides)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: missing, a dictionary of {path}: give its folder as DATA{hint}") from error
    except UserError as error:
        if "Could not infer language pair" not in str(error):
            raise
        folder = f"ode-transformer translate DATA --path {path}{hint}"
        raise UserError(f"{data}: no dictionaries of {path}; name their folder: {folder}") from error
    return model.eval(), options, task
