"""Translations of a binarised split as lines of words, as fairseq-generate prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.translate import normalize_spaces, search_best
from ode_transformer.support.console import ProgressMeter
from ode_transformer.support.subword_models import kind_of_symbols


def joined_pieces(task: Any, remove_bpe: str | None) -> str | None:
    """Return how the pieces of a model's translations are joined to words; None for whole words.

    :param remove_bpe: value of ``--remove-bpe``; None for the marks in the target dictionary, "none" to join nothing
    """
    if remove_bpe is None:
        return kind_of_symbols(task.target_dictionary.symbols)
    return None if remove_bpe == "none" else remove_bpe


def target_line(task: Any, tokens: Any, remove_bpe: str | None, escape_unk: bool = False) -> str:
    """Convert token numbers to a line of the target language, as fairseq-generate does.

    :param escape_unk: write unknown tokens of references unlike those of hypotheses, so that they never match
    """
    return normalize_spaces(task.target_dictionary.string(tokens.int().cpu(), remove_bpe, escape_unk=escape_unk))


def reference_lines(task: Any, split: Split, numbers: Sequence[int], remove_bpe: str | None) -> list[str]:
    """Return the references of sentences of a split.

    :param remove_bpe: see :func:`joined_pieces`
    """
    return [target_line(task, row["target"], remove_bpe, escape_unk=True) for row in split.rows(numbers)]


def translate_split(
    hub: Any, split: Split, numbers: Sequence[int], remove_bpe: str | None, chunk_size: int, **search: Any
) -> list[str]:
    """Return the best translation of sentences of a split, in their order; lines on standard error say how far it is.

    :param hub: fairseq's ``GeneratorHubInterface``
    :param remove_bpe: see :func:`joined_pieces`
    :param chunk_size: number of sentences that are translated together
    :param search: options of fairseq's search: ``beam``, ``lenpen``, ``max_len_b``
    """
    sources = [row["source"] for row in split.rows(numbers)]
    by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))  # for little padding
    meter = ProgressMeter("sentences decoded", len(sources))
    lines = [""] * len(sources)
    translations = search_best(hub, [sources[index] for index in by_length], chunk_size, **search)
    for count, (index, tokens) in enumerate(zip(by_length, translations, strict=True), start=1):
        lines[index] = target_line(hub.task, tokens, remove_bpe)
        meter.update(count)
    return lines
