"""A trained model with its task, from a checkpoint and the folder of its dictionaries."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.reading import build_model, load_checkpoint, saved_options
from ode_transformer.support.errors import UserError
from ode_transformer.support.fairseq_import import import_fairseq

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
    import_fairseq()
    import ode_transformer.models  # noqa: F401  (registers the architectures)

    state = load_checkpoint(path)
    saved = saved_options(state, "task")
    task_name = saved.get("_name") or saved.get("task")
    overrides = {"data": str(data)}
    if task_name in _TRANSLATION:
        overrides["source_lang"], overrides["target_lang"] = _languages(saved, data, source, target)
        dictionaries = [f"dict.{overrides[side]}.txt" for side in ("source_lang", "target_lang")]
    elif task_name == "language_modeling" and language_model:
        dictionaries = ["dict.txt"]
    else:
        kinds = "translation or language_modeling" if language_model else "translation"
        raise UserError(f"{path}: a model of the task {task_name}, not of {kinds}")
    for name in dictionaries:
        if not (data / name).is_file():
            raise UserError(f"{data / name}: missing, a dictionary of {path}: give its folder as DATA{_hint(saved)}")
    if scheme is not None:
        overrides |= _scheme_overrides(state, scheme, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra warns about the way in which fairseq reads old options
        model, options, task = build_model(path, state, overrides)
    return model.eval(), options, task


def _languages(saved: Mapping[str, Any], data: Path, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the languages of the arguments, else of the checkpoint, else of the file names in ``data``."""
    from fairseq.data import data_utils

    file_languages = data_utils.infer_language_pair(str(data)) or (None, None)
    source = source or saved.get("source_lang") or file_languages[0]
    target = target or saved.get("target_lang") or file_languages[1]
    if source is None or target is None:
        raise UserError(f"{data}: no file names the languages: give --source-lang and --target-lang{_hint(saved)}")
    return source, target


def _hint(saved: Mapping[str, Any]) -> str:
    """Return a hint at the folder that the training read."""
    return f" (the training read {str(saved['data'])[:200]})" if isinstance(saved.get("data"), str) else ""


def _scheme_overrides(state: dict[str, Any], scheme: str, path: Path) -> dict[str, str]:
    saved = saved_options(state, "model")
    trained = saved.get("encoder_ode_scheme")
    if trained is None:
        raise UserError(f"{path}: its architecture steps no scheme, so it cannot be read under {scheme}")
    return {option: scheme for option in ("encoder_ode_scheme", "decoder_ode_scheme") if saved.get(option) == trained}
