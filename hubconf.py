"""PyTorch Hub: a model that was trained with this package, with its dictionaries and pieces.

torch.hub.load("CLONE", "translation_model", "experiments/my-experiment/RUN/model", source="local")
"""

from typing import Any

dependencies = ["torch", "sentencepiece", "subword_nmt"]


def translation_model(folder: str, checkpoint_file: str = "model.pt", **options: Any) -> Any:
    """Load a translation model; its ``translate`` takes a sentence, or a list of them.

    :param folder: with the checkpoint, its dictionaries and its pieces
    :param options: of ``ode_transformer.decoding.loading.load``, such as ``data`` for a folder with the dictionaries
    """
    from ode_transformer.decoding.loading import load

    return load(folder, checkpoint_file, **options)


def language_model(folder: str, checkpoint_file: str = "model.pt", **options: Any) -> Any:
    """Load a language model: ``models[0]`` is the module, ``encode`` gives the numbers of a text's pieces.

    Parameters are those of :func:`translation_model`.
    """
    return translation_model(folder, checkpoint_file, **options)
