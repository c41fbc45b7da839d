"""Trained models with their dictionaries, from a checkpoint, without fairseq.

What only fairseq computes, such as an adaptive softmax or another of its architectures, is loaded by fairseq where
that is installed.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.dictionary import Dictionary, dictionary_path, swapped_languages, words_digest
from ode_transformer.checkpoints.plain_model import NeedsFairseq, build_plain_model
from ode_transformer.checkpoints.reading import load_checkpoint, option_group, saved_languages, saved_options
from ode_transformer.support.errors import FAIRSEQ_MISSING, UserError

_TRANSLATION = ("translation", "joint_translation")
_LANGUAGE_MODELING = ("language_modeling",)


@dataclass(frozen=True)
class TrainedModel:
    """A model in evaluation mode, its dictionaries and its languages.

    :param path: checkpoint
    :param model: a plain model, or one of fairseq's if only that can compute it
    :param data: folder of the dictionaries
    :param options: of the model, as its training had them
    :param task_options: of its training's task
    :param languages: of source and target; None for a language model
    """

    path: Path
    data: Path
    model: Any
    options: Mapping[str, Any]
    task_options: Mapping[str, Any]
    source_dictionary: Dictionary
    target_dictionary: Dictionary
    languages: tuple[str, str] | None

    @property
    def max_positions(self) -> Any:
        """Tokens of the longest source and target, or of a language model's longest text."""
        if hasattr(self.model, "max_positions"):  # of fairseq
            return self.model.max_positions()
        target = self.model.max_target_positions
        return target if self.languages is None else (self.model.encoder.max_positions(), target)

    @property
    def continues(self) -> bool:
        """True for a language model, which continues texts."""
        return self.languages is None


def load_plain_model(
    path: Path,
    data: Path,
    source: str | None = None,
    target: str | None = None,
    language_model: bool = False,
    scheme: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> TrainedModel:
    """Load a model with its dictionaries.

    :param data: folder with ``dict.<language>.txt`` of both languages, or with ``dict.txt`` of a language model
    :param source: source language; by default that of the checkpoint, or of the file names in ``data``
    :param target: target language, likewise
    :param language_model: accept a language model, too
    :param scheme: scheme in place of the encoder's, and of the decoder's if it is the same; None for the trained ones
    :param state: what was read of the checkpoint already
    :raises UserError: the checkpoint is broken, a dictionary is missing, or they do not belong together
    :raises NeedsFairseq: the model has a part that only fairseq has
    """
    state = load_checkpoint(path) if state is None else state
    saved, saved_model = saved_options(state, "task"), saved_options(state, "model")
    continues = _is_language_model(path, saved, language_model)
    hint = f" (the training read {saved['data']})" if saved.get("data") else ""
    trained = saved_languages(state)
    languages = None if continues else _languages(path, data, trained, (source, target), hint)
    try:
        dictionaries = [Dictionary.load(dictionary_path(data, language)) for language in languages or (None,)]
    except FileNotFoundError as error:
        folder = f"give its folder as DATA or --data{hint}"
        raise UserError(f"{error.filename}: missing, a dictionary of {path}: {folder}") from error
    _check_dictionaries(path, data, state, dictionaries)
    try:
        changes = _changed_scheme(path, saved_model, scheme)
        model = build_plain_model(state, len(dictionaries[0]), len(dictionaries[-1]), changes)
    except NeedsFairseq:
        raise
    except UserError as error:
        raise UserError(f"{path}: {error}; dictionaries of {data}") from error
    return TrainedModel(path, data, model, saved_model, saved, dictionaries[0], dictionaries[-1], languages)


def _is_language_model(path: Path, task: Mapping[str, Any], language_model: bool) -> bool:
    """Tell whether a checkpoint is of a language model.

    :raises UserError: it is of another task
    """
    name = task.get("_name") or task.get("task")
    if name not in (*_TRANSLATION, *(_LANGUAGE_MODELING if language_model else ())):
        kinds = "translation or language_modeling" if language_model else "translation"
        raise UserError(f"{path}: a model of the task {name}, not of {kinds}")
    return name in _LANGUAGE_MODELING


def _languages(
    path: Path, data: Path, languages: Mapping[str, Any], asked: tuple[str | None, str | None], hint: str
) -> tuple[str, str]:
    """Return the languages that a user, the checkpoint, or binarised files such as ``train.en-de.en.bin`` name.

    :raises UserError: nobody does
    """
    trained = languages["source_lang"], languages["target_lang"]
    saved = asked[0] or trained[0], asked[1] or trained[1]
    if reason := swapped_languages(saved, trained):
        raise UserError(reason)
    if all(saved):
        return str(saved[0]), str(saved[1])
    names = (name.split(".") for name in (sorted(os.listdir(data)) if data.is_dir() else ()))
    pairs = (parts[1].split("-") for parts in names if len(parts) >= 3)
    for pair in pairs:
        if len(pair) == 2:
            return saved[0] or pair[0], saved[1] or pair[1]
    found = sorted(file.name.split(".")[1] for file in data.glob("dict.*.txt"))
    if len(found) == 2:
        flags = "say --source-lang and --target-lang"
        raise UserError(f"{path}: it does not say which of {' and '.join(found)} is its source: {flags}")
    folder = f"ode-transformer translate DATA --path {path}{hint}"
    raise UserError(f"{data}: no dictionaries of {path}; name their folder: {folder}")


def _check_dictionaries(path: Path, data: Path, state: Mapping[str, Any], dictionaries: list[Dictionary]) -> None:
    """Refuse other dictionaries than those that a checkpoint remembers."""
    remembered = option_group(option_group(state.get("task_state")).get("dictionaries"))
    for side, dictionary in zip(("source", "target"), (dictionaries[0], dictionaries[-1]), strict=True):
        digest = words_digest(dictionary.symbols)
        if remembered.get(side, digest) != digest:
            raise UserError(f"{path}: the model was trained with another {side} dictionary than that of {data}")


def _changed_scheme(path: Path, options: Mapping[str, Any], scheme: str | None) -> dict[str, str]:
    """Return the options that replace the trained scheme."""
    if scheme is None:
        return {}
    trained = options.get("encoder_ode_scheme")
    if trained is None:
        raise UserError(f"{path}: its architecture steps no scheme, so it cannot be read under {scheme}")
    schemes = ("encoder_ode_scheme", "decoder_ode_scheme")
    return {option: scheme for option in schemes if options.get(option) == trained}


def load_trained_model(
    path: Path, data: Path, source: str | None = None, target: str | None = None, language_model: bool = False
) -> TrainedModel:
    """Load a model with its dictionaries; by fairseq, where it is installed, if only that can compute it.

    The parameters are those of :func:`load_plain_model`.

    :raises UserError: as :func:`load_plain_model`, or fairseq is missing
    """
    state = load_checkpoint(path)
    try:
        return load_plain_model(path, data, source, target, language_model, state=state)
    except NeedsFairseq as reason:
        check_fairseq(path, reason)
    from ode_transformer.models.trained_model import load_trained_model as load_fairseqs

    model, _, task = load_fairseqs(path, data, source, target, state=state)
    options, task_options = saved_options(state, "model"), saved_options(state, "task")
    dictionaries = task.source_dictionary, task.target_dictionary
    pair = None if hasattr(task.cfg, "tokens_per_sample") else (task.cfg.source_lang, task.cfg.target_lang)
    return TrainedModel(path, data, model, options, task_options, *dictionaries, pair)


def check_fairseq(path: Path, reason: NeedsFairseq) -> None:
    """Refuse a model that needs fairseq where it is not installed."""
    if find_spec("fairseq") is None:
        raise UserError(f"{path}: {reason}; {FAIRSEQ_MISSING}") from reason


def load_hub(args: argparse.Namespace, path: Path, language_model: bool = False, scheme: str | None = None) -> Any:
    """Load a model as a :class:`Translator` without subword encoder, on the GPU if there is one.

    A model that only fairseq can compute is loaded by fairseq, with the same methods.

    :param args: data, languages, batches and device of a command
    :raises UserError: it needs fairseq, which is not installed
    """
    import torch

    from ode_transformer.decoding.recorded_search import RecordedSearches
    from ode_transformer.decoding.translator import Translator

    state = load_checkpoint(path)
    languages = args.source_lang, args.target_lang
    max_tokens = getattr(args, "max_tokens", None)
    try:
        trained = load_plain_model(path, args.data or path.parent, *languages, language_model, scheme, state)
        hub = Translator([trained], args.batch_size, max_tokens)
    except NeedsFairseq as reason:
        check_fairseq(path, reason)
        from ode_transformer.models.translation_hub import load_fairseq_hub

        hub = load_fairseq_hub(args, path, _changed_scheme(path, saved_options(state, "model"), scheme), state)
    if args.cpu or not torch.cuda.is_available():
        return hub
    hub.recorded = RecordedSearches() if getattr(args, "cuda_graphs", True) else None
    return hub.cuda()
