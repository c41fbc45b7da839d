"""A trained model with its task, from a checkpoint and the folder of its dictionaries."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.errors import UserError
from ode_transformer.support.fairseq_import import import_fairseq
from ode_transformer.support.plain_options import saved_options

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
    :raises UserError: the checkpoint or a dictionary is broken or missing, or they do not belong together
    :raises OSError: the checkpoint or ``data`` cannot be opened
    """
    import_fairseq()
    from ode_transformer.models.saved_model import build_saved_model

    state = load_checkpoint(path)
    saved = saved_options(state, "task")
    task_name = saved.get("_name") or saved.get("task")
    if task_name in _TRANSLATION:
        languages = _languages(saved, data, source, target)
        dictionaries = [f"dict.{language}.txt" for language in languages]
        if data.is_dir() and not any((data / name).exists() for name in dictionaries):
            raise UserError(
                f"{data / dictionaries[0]}: missing, and {dictionaries[1]}, the dictionaries of {path}: "
                f"give their folder as DATA{_data_hint(saved)}"
            )
        overrides = {"source_lang": languages[0], "target_lang": languages[1]}
    elif task_name == "language_modeling" and language_model:
        dictionaries, overrides = ["dict.txt"], {}
    else:
        kinds = "translation or language_modeling" if language_model else "translation"
        raise UserError(f"{path}: a model of the task {task_name}, not of {kinds}")
    for name in dictionaries:
        _check_dictionary(data / name, path)
    overrides["data"] = str(data)
    if scheme is not None:
        overrides |= _scheme_overrides(state, scheme, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra warns about the way in which fairseq reads old options
        model, options, task = build_saved_model(path, state, overrides)
    return model.eval(), options, task


def _languages(saved: Mapping[str, Any], data: Path, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the languages of the arguments, else of the checkpoint, else of the file names in ``data``."""
    from fairseq.data import data_utils

    file_languages = data_utils.infer_language_pair(str(data)) or (None, None)
    source = source or saved.get("source_lang") or file_languages[0]
    target = target or saved.get("target_lang") or file_languages[1]
    if source is None or target is None:
        flags = {"--source-lang": source, "--target-lang": target}
        absent = " and ".join(flag for flag, language in flags.items() if language is None)
        dictionary_hint = (
            ""
            if list(data.glob("dict.*.txt"))
            else f", and the folder of their dictionaries as DATA{_data_hint(saved)}"
        )
        raise UserError(f"{data}: no file names the languages: give {absent}{dictionary_hint}")
    return source, target


def _data_hint(saved: Mapping[str, Any]) -> str:
    """Return a hint at the folder that the training read."""
    return f" (the training read {str(saved['data'])[:200]})" if isinstance(saved.get("data"), str) else ""


def _check_dictionary(dictionary: Path, model: Path) -> None:
    from fairseq.data import Dictionary

    if not dictionary.is_file():
        raise UserError(f"{dictionary}: missing, it is a dictionary of {model}")
    try:
        Dictionary.load(str(dictionary))
    except Exception as error:  # fairseq raises Exception itself
        raise UserError(f"{dictionary}: not a dictionary: {error}") from error


def _scheme_overrides(state: dict[str, Any], scheme: str, path: Path) -> dict[str, str]:
    saved = saved_options(state, "model")
    trained = saved.get("encoder_ode_scheme")
    if trained is None:
        raise UserError(f"{path}: its architecture steps no scheme, so it cannot be read under {scheme}")
    return {option: scheme for option in ("encoder_ode_scheme", "decoder_ode_scheme") if saved.get(option) == trained}
