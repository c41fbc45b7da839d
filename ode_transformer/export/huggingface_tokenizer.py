"""The subword model and the dictionaries of a translation model as a tokenizer of ``transformers``."""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from ode_transformer.decoding.translate import normalize_spaces
from ode_transformer.support.subword_models import (
    SENTENCEPIECE_FILE,
    SUBWORD_NMT_FILE,
    SubwordEncoder,
    join_pieces,
    kind_of_symbols,
)

DICTIONARIES_FILE = "vocab.json"


class ODETransformerTokenizer(PreTrainedTokenizer):
    """Divides lines as ``ode-transformer translate`` does and numbers the pieces as fairseq's dictionaries do.

    Text is numbered by the source dictionary, ``text_target`` by the target dictionary; numbers are decoded by the
    target dictionary. Without a subword model, text is divided at spaces.

    :param vocab_file: symbols of both dictionaries in the order of their numbers
    """

    vocab_files_names = {  # noqa: RUF012
        "vocab_file": DICTIONARIES_FILE,
        "sentencepiece_file": SENTENCEPIECE_FILE,
        "subword_nmt_file": SUBWORD_NMT_FILE,
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        vocab_file: str,
        sentencepiece_file: str | None = None,
        subword_nmt_file: str | None = None,
        **settings: Any,
    ) -> None:
        self.vocab_file = vocab_file
        symbols = json.loads(Path(vocab_file).read_text(encoding="utf-8"))
        self.source_numbers, self.target_numbers = (
            {symbol: number for number, symbol in enumerate(symbols[side])} for side in ("source", "target")
        )
        self.target_symbols: list[str] = symbols["target"]
        self.numbers = self.source_numbers
        self.piece_kind = kind_of_symbols(self.target_symbols)
        files = {"sentencepiece": sentencepiece_file, "subword_nmt": subword_nmt_file}
        self.subword_model = next(((kind, Path(file)) for kind, file in files.items() if file), None)
        self.divider = SubwordEncoder(*self.subword_model) if self.subword_model else None
        special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        # Special symbols in a text are words, as for fairseq.
        super().__init__(**{**special, "special_tokens_pattern": "eos", "split_special_tokens": True, **settings})

    @property
    def vocab_size(self) -> int:
        """Entries of the source dictionary; of the target dictionary for ``text_target``."""
        return len(self.numbers)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.numbers)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        line = normalize_spaces(text)
        return (self.divider.encode(line) if self.divider else line).split()

    def _convert_token_to_id(self, token: str) -> int:
        return self.numbers.get(token, self.numbers["<unk>"])

    def _convert_id_to_token(self, index: int) -> str:
        return self.target_symbols[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return normalize_spaces(join_pieces(" ".join(tokens), self.piece_kind))

    def _switch_to_input_mode(self) -> None:
        self.numbers = self.source_numbers

    def _switch_to_target_mode(self) -> None:
        self.numbers = self.target_numbers

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write the dictionaries and the subword model into a folder; return their paths."""
        files = [Path(self.vocab_file), *([self.subword_model[1]] if self.subword_model else [])]
        written = []
        for file in files:
            path = Path(save_directory) / (f"{filename_prefix}-{file.name}" if filename_prefix else file.name)
            if not path.exists() or not path.samefile(file):
                shutil.copyfile(file, path)
            written.append(str(path))
        return tuple(written)
