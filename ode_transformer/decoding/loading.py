"""A trained model's folder as an object of Python."""

import os
from pathlib import Path

from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.decoding.translator import Translator
from ode_transformer.support.subword_models import SubwordEncoder, choose_subword_model, find_subword_model


def load(
    folder: str | os.PathLike[str],
    checkpoint_file: str = "model.pt",
    data: str | os.PathLike[str] | None = None,
    source: str | None = None,
    target: str | None = None,
    bpe: str | None = None,
    bpe_model: str | os.PathLike[str] | None = None,
) -> Translator:
    """Load a translation or language model; its ``translate`` takes a line, or a list of them.

    :param folder: with the checkpoint, its dictionaries and its subword model
    :param data: folder of the dictionaries, if they are not in ``folder``
    :param source: source language; by default that of the training
    :param target: target language, likewise
    :param bpe: kind of subwords, sentencepiece, subword_nmt or none; by default by the file in ``folder``
    :param bpe_model: file of ``bpe``
    :raises UserError: a file is missing, broken or refused, or they do not belong together
    """
    folder, words = Path(folder), Path(data or folder)
    trained = load_trained_model(folder / checkpoint_file, words, source, target, language_model=True)
    translator = Translator([trained])
    subword_model = find_subword_model(folder) or find_subword_model(words)
    if bpe is not None:
        subword_model = choose_subword_model(bpe, None if bpe_model is None else Path(bpe_model), folder, words)
    translator.bpe = SubwordEncoder(*subword_model) if subword_model else None
    return translator
