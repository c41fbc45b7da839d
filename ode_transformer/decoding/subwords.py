"""The subword model of a trained model: which file it is."""

from __future__ import annotations

from pathlib import Path

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_encoder import SubwordEncoder
from ode_transformer.support.subword_models import SUBWORD_MODELS, find_subword_model


def choose_subword_model(name: str | None, file: Path | None, directory: Path) -> tuple[str, Path] | None:
    """Return the kind and the file of a model's subword model; None if the text is divided into subwords already.

    :param name: a key of ``SUBWORD_MODELS``, or none; by default that of the file in ``directory``
    :param file: file of the subword model; by default the one in ``directory``
    :param directory: folder of the translation model
    :raises UserError: the name is unknown, or the file missing; several files could be the subword model
    """
    if name not in (None, "none", *SUBWORD_MODELS):
        raise UserError(f"--bpe {name}: unknown; known are {', '.join(SUBWORD_MODELS)} and none")
    if file and name in (None, "none"):
        raise UserError(f"--bpe-model {file}: name its kind with --bpe {' or '.join(SUBWORD_MODELS)}")
    if name == "none":
        return None
    if name is not None and file:
        return name, file
    model = find_subword_model(directory, SUBWORD_MODELS if name is None else [name])
    if model is not None and model[1].name != SUBWORD_MODELS[model[0]].file_name:
        print_progress(f"subword model: {model[1]} ({model[0]})")
    if model is None and name is not None:
        expected = directory / SUBWORD_MODELS[name].file_name
        raise UserError(f"--bpe {name}: name its file with --bpe-model, there is no {expected}")
    return model


def build_bpe(name: str | None, file: Path | None, directory: Path) -> SubwordEncoder | None:
    """Build the subword encoder of a model; parameters and result as of :func:`choose_subword_model`.

    :raises UserError: likewise, or the file is broken
    """
    model = choose_subword_model(name, file, directory)
    return None if model is None else SubwordEncoder(*model)
