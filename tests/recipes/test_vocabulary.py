from pathlib import Path

import pytest
import sentencepiece

from ode_transformer.errors import UserError
from ode_transformer.recipes.vocabulary import MODEL, train_and_encode

WORDS = "the a red green old new house garden river bridge".split()  # noqa: SIM905


def corpus(directory: Path) -> Path:
    directory.mkdir()
    lines = [" ".join(WORDS[(7 * i + j * j) % len(WORDS)] for j in range(3 + i % 5)) for i in range(200)]
    for split, chosen in (("train", lines[:180]), ("valid", lines[180:190]), ("test", lines[190:])):
        for language in ("en", "xx"):
            (directory / f"{split}.{language}").write_text("".join(f"{line}\n" for line in chosen))
    return directory


def test_pieces_give_the_text_back(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    train_and_encode(text, ("en", "xx"), 28, tmp_path / "pieces")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces" / MODEL))
    assert processor.get_piece_size() == 28
    for name in ("train.en", "test.xx"):
        encoded = (tmp_path / "pieces" / name).read_text().splitlines()
        decoded = [processor.decode(line.split()) for line in encoded]
        assert decoded == (text / name).read_text().splitlines()
    assert {path.name for path in (tmp_path / "pieces").iterdir()} == {
        MODEL,
        *(f"{split}.{language}" for split in ("train", "valid", "test") for language in ("en", "xx")),
    }


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    (text / "valid.en").write_bytes("the\rold\x85house\n\nnew\u2028bridge\x0b".encode())
    train_and_encode(text, ("en", "xx"), 28, tmp_path / "pieces")
    encoded = (tmp_path / "pieces" / "valid.en").read_bytes().decode().split("\n")
    assert [bool(line) for line in encoded] == [True, False, True, False]
    assert "\r" not in "".join(encoded)  # at which fairseq-preprocess would end a line


def test_a_corpus_that_is_not_utf8(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    (text / "test.xx").write_bytes(b"the old\nhou\xffse\n")
    with pytest.raises(UserError, match=r"test\.xx: line 2 is not UTF-8: byte 4 of it is 0xff"):
        train_and_encode(text, ("en", "xx"), 28, tmp_path / "pieces")
    assert not list((tmp_path / "pieces").glob("train.*"))


def test_too_many_pieces(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    with pytest.raises(UserError, match=r"vocabulary of 100000 pieces from .*corpus"):
        train_and_encode(text, ("en", "xx"), 100000, tmp_path / "pieces")
    assert not list((tmp_path / "pieces").glob("train.*"))
