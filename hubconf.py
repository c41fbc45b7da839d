"""PyTorch Hub: a model that was trained with this package, with its dictionaries and pieces.

torch.hub.load("CLONE", "translation_model", "experiments/my-experiment/RUN/model", source="local")
"""

from pathlib import Path
from typing import Any

dependencies = ["torch", "fairseq", "sentencepiece", "subword_nmt"]


def translation_model(folder: str, checkpoint_file: str = "model.pt", **options: Any) -> Any:
    """Load a translation model; its ``translate`` takes a sentence, or a list of them.

    :param folder: with the checkpoint, its dictionaries and its pieces
    :param options: of ``from_pretrained``, such as ``data_name_or_path`` for a folder with the dictionaries
    """
    from ode_transformer.models import ODETransformerModel

    return ODETransformerModel.from_pretrained(folder, checkpoint_file, **_with_subword_model(folder, options))


def language_model(folder: str, checkpoint_file: str = "model.pt", **options: Any) -> Any:
    """Load a language model: ``models[0]`` is the module, ``encode`` gives the numbers of a text's pieces.

    fairseq's ``score`` and ``sample`` of language models fail under NumPy 2.

    :param folder: as for ``translation_model``
    :param options: likewise
    """
    from ode_transformer.models import ODELanguageModel

    return ODELanguageModel.from_pretrained(folder, checkpoint_file, **_with_subword_model(folder, options))


def _with_subword_model(folder: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with those that name the subword model in the folder, unless the caller names one.

    :raises UserError: there are several
    """
    from ode_transformer.support.subword_models import SUBWORD_MODELS, find_subword_model

    named = {"bpe", *(model.fairseq_option for model in SUBWORD_MODELS.values())} & options.keys()
    if named or (found := find_subword_model(Path(folder))) is None:
        return options
    kind, file = found
    return {"bpe": kind, SUBWORD_MODELS[kind].fairseq_option: str(file)} | options
