"""Trained models with their tasks, from a checkpoint and the folder of its dictionaries."""

import argparse
import warnings
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.reading import build_model, load_checkpoint, saved_options
from ode_transformer.checkpoints.stored_sizes import stored_numbers
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
    numbers = stored_numbers(state["model"].values())
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
        names = sorted(file.name.split(".")[1] for file in data.glob("dict.*.txt"))
        if len(names) == 2:
            flags = "say --source-lang and --target-lang"
            raise UserError(f"{path}: it does not say which of {' and '.join(names)} is its source: {flags}") from error
        folder = f"ode-transformer translate DATA --path {path}{hint}"
        raise UserError(f"{data}: no dictionaries of {path}; name their folder: {folder}") from error
    return model.eval(), options, task


def load_hub(args: argparse.Namespace, path: Path, language_model: bool = False, scheme: str | None = None) -> Any:
    """Load a model as a :class:`TranslationHub` without subword encoder, on the GPU if there is one.

    :param args: data, languages, batches and device of a command
    """
    languages = args.source_lang, args.target_lang
    model, options, task = load_trained_model(path, args.data or path.parent, *languages, language_model, scheme)
    import torch

    from ode_transformer.decoding.recorded_search import RecordedSearches
    from ode_transformer.decoding.translation_hub import TranslationHub

    # As in fairseq-interactive, the training's options for batches are ignored.
    options.dataset.batch_size, options.dataset.max_tokens = args.batch_size, getattr(args, "max_tokens", None)
    hub = TranslationHub(options, task, [model])
    if args.cpu or not torch.cuda.is_available():
        return hub
    hub.recorded = RecordedSearches() if getattr(args, "cuda_graphs", True) else None
    return hub.cuda()
