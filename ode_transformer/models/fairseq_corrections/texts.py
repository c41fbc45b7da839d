"""Corrections of fairseq's dictionaries, and of which of them belong to a model."""

from collections.abc import Callable
from typing import Any

from fairseq.data import Dictionary
from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask
from fairseq.tokenizer import tokenize_line
from torch import Tensor

from ode_transformer.checkpoints.dictionary import swapped_languages
from ode_transformer.checkpoints.reading import option_group
from ode_transformer.checkpoints.stored_sizes import check_dictionary
from ode_transformer.models.fairseq_corrections.replacing import Function, replace
from ode_transformer.models.pretrained import dictionary_digests
from ode_transformer.support.errors import OptionError


@replace(Dictionary, "encode_line")
def _read_symbols_as_unknown_words(
    original: Function,
    words: Dictionary,
    line: str,
    line_tokenizer: Callable[[str], list[str]] = tokenize_line,
    add_if_not_exist: bool = True,
    consumer: Function | None = None,
    append_eos: bool = True,
    reverse_order: bool = False,
) -> Tensor:
    """Read ``<pad>`` and other names of symbols in a text as unknown words, not as padding or an end.

    A program that writes symbols into a line, as that of RoBERTa does, has no end appended.
    """
    symbols = {words.bos_word, words.pad_word, words.eos_word}
    divide = line_tokenizer
    if append_eos and any(symbol in line for symbol in symbols):

        def divide(line: str) -> list[str]:
            return [words.unk_word if word in symbols else word for word in line_tokenizer(line)]

    return original(words, line, divide, add_if_not_exist, consumer, append_eos, reverse_order)


@replace(Dictionary, "add_from_file")
def _read_dictionary(original: Function, dictionary: Dictionary, file: Any) -> None:
    """Refuse a dictionary that is a pipe or a device, or one line without end."""
    if isinstance(file, str):
        check_dictionary(PathManager.get_local_path(file))
    original(dictionary, file)


@replace(FairseqTask, "state_dict")
def _remember_data(original: Function, task: FairseqTask) -> dict[str, Any]:
    """Write into a checkpoint which dictionaries and languages its parameters belong to.

    fairseq's options hold the languages only if the user named them.
    """
    return {**original(task), "dictionaries": dictionary_digests(task), "languages": _languages(task)}


def _languages(task: FairseqTask) -> dict[str, str | None]:
    config = task.cfg or task.args  # older tasks have no cfg
    return {name: getattr(config, name, None) for name in ("source_lang", "target_lang")}


@replace(FairseqTask, "load_state_dict")
def _require_own_data(original: Function, task: FairseqTask, state: dict[str, Any]) -> None:
    """Refuse data of another training, with which a model writes nonsense; older checkpoints name no dictionaries.

    :param state: with the languages of the training, as ``admitted_state`` adds them
    :raises OptionError: a dictionary has other words, or the same in another order; source and target are swapped
    """
    trained = option_group(state.get("languages"))
    asked = tuple(_languages(task).values())
    if reason := swapped_languages(asked, (trained.get("source_lang"), trained.get("target_lang"))):
        raise OptionError(reason)
    saved = option_group(state.get("dictionaries"))
    for side, digest in dictionary_digests(task).items():
        if saved.get(side, digest) != digest:
            data = getattr(task.cfg or task.args, "data", None)
            raise OptionError(f"the model was trained with another {side} dictionary than that of {data}")
    original(task, {name: value for name, value in state.items() if name not in ("dictionaries", "languages")})
