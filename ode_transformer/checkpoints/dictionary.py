"""Dictionaries of words in fairseq's format: ``dict.LANGUAGE.txt``, a word and its count on each line.

The special symbols <s>, <pad>, </s> and <unk> stand before the words of the file, with the numbers 0 to 3. A word that
is a special symbol or comes twice carries ``#fairseq:overwrite``: its last place counts.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ode_transformer.checkpoints.stored_sizes import check_dictionary
from ode_transformer.nn import BEGIN, END, PADDING, UNKNOWN
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.subword_models import join_pieces

SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
_OVERWRITE = "#fairseq:overwrite"
_SPACES = re.compile(r"\s+")


class Dictionary:
    """Words by number, with the methods of fairseq's dictionaries that the plugin calls.

    :ivar symbols: the words by number, the special symbols first
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.symbols = [*SPECIAL_SYMBOLS, *words]
        self.indices = {word: number for number, word in enumerate(self.symbols)}
        self.nspecial = len(SPECIAL_SYMBOLS)
        self.bos_word, self.pad_word, self.eos_word, self.unk_word = SPECIAL_SYMBOLS

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Dictionary":
        """Read a file.

        :raises UserError: a line has no count, or a word comes twice
        """
        check_dictionary(path)
        dictionary = cls()
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                word, _, count = line.rstrip().rpartition(" ")
                overwrites = count == _OVERWRITE
                if overwrites:
                    word, _, count = word.rpartition(" ")
                if not word or not count.lstrip("-").isdigit():
                    raise UserError(f"{path}: line {number}: {one_line(line, 40)!r} is not a word and its count")
                if word in dictionary.indices and not overwrites:
                    raise UserError(f"{path}: line {number}: {one_line(word, 40)!r} comes twice")
                dictionary.indices[word] = len(dictionary.symbols)
                dictionary.symbols.append(word)
        return dictionary

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, number: int) -> str:
        return self.symbols[number] if number < len(self.symbols) else self.unk_word

    def bos(self) -> int:
        """Return the number of the symbol that begins a text."""
        return BEGIN

    def pad(self) -> int:
        """Return the number of the padding."""
        return PADDING

    def eos(self) -> int:
        """Return the number of the symbol that ends a text."""
        return END

    def unk(self) -> int:
        """Return the number of the unknown word."""
        return UNKNOWN

    def index(self, word: str) -> int:
        """Return the number of a word, that of the unknown word for others."""
        return self.indices.get(word, UNKNOWN)

    def encode_line(self, line: str) -> Tensor:
        """Return the numbers of a line's words with the end symbol, [T]."""
        return torch.tensor([*map(self.index, _SPACES.sub(" ", line).strip().split()), END])

    def string(self, tokens: Tensor | Sequence[int], pieces: str | None = None, escape_unk: bool = False) -> str:
        """Return the words of numbers as a line, without the symbols that begin and end a text.

        :param pieces: kind of subwords whose pieces are joined to words
        :param escape_unk: write unknown words as <<unk>>, unlike those of an output
        """
        unknown = f"<{self.unk_word}>" if escape_unk else self.unk_word
        numbers = [int(number) for number in tokens]
        words = (unknown if n == UNKNOWN else self[n] for n in numbers if n not in (BEGIN, END))
        return join_pieces(" ".join(words), pieces)


def words_digest(symbols: Sequence[str]) -> str:
    """Return the SHA-256 of words in their order, by which a checkpoint remembers a dictionary."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def swapped_languages(asked: Sequence[str | None], trained: Sequence[str | None]) -> str | None:
    """Return in one line why a model cannot translate between two languages; None if it can.

    :param asked: source and target that the user names
    :param trained: source and target of the training
    """
    (source, target), named = trained, None not in (*asked, *trained)
    if named and source != target and (asked[0] == target or asked[1] == source):
        return f"--source-lang {asked[0]} --target-lang {asked[1]}: the model translates {source} to {target}"
    return None


def dictionary_path(folder: Path, language: str | None) -> Path:
    """Return the path of a language's dictionary, or of a language model's if ``language`` is None."""
    return folder / ("dict.txt" if language is None else f"dict.{language}.txt")
