"""Vocabularies: every kind gives the text back, and has an error for text that is too small."""

import shutil
from pathlib import Path

import pytest
import sentencepiece

from ode_transformer.lab.corpora import vocabulary
from ode_transformer.lab.corpora.vocabulary import (
    MergeVocabulary,
    PieceVocabulary,
    WordVocabulary,
    divide_lines,
    encode_text,
)
from ode_transformer.support import console
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE, SUBWORD_NMT_FILE

WORDS = "the a red green old new house garden river bridge".split()  # noqa: SIM905
MERGES = MergeVocabulary(kind="subword_nmt", merges=20)
PIECES = PieceVocabulary(kind="sentencepiece", size=50)


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    """Training text of two sides."""
    lines = [" ".join(WORDS[(7 * i + j * j) % len(WORDS)] for j in range(3 + i % 5)) for i in range(180)]
    paths = [tmp_path / "train.en", tmp_path / "train.xx"]
    for path, side in zip(paths, (lines, [line.upper() for line in lines]), strict=True):
        path.write_text("".join(f"{line}\n" for line in side))
    return paths


@pytest.mark.parametrize("pieces", [MERGES, PIECES, WordVocabulary(kind="words")], ids=lambda v: v.kind)
def test_the_text_comes_back(texts: list[Path], tmp_path: Path, pieces) -> None:
    with texts[1].open("a") as file:
        file.write("\nTHE RED\u2028BRIDGE\n" if pieces is PIECES else "\n")  # only line feeds end a line
    pieces.learn(texts, tmp_path)
    assert pieces.model_file is None or (tmp_path / pieces.model_file).is_file()
    lines = list(encode_text(pieces, tmp_path, texts[1], workers=2))
    expected = [" ".join(line.split()) for line in texts[1].read_text().split("\n")[:-1]]
    again = [line.replace("@@ ", "") for line in lines]
    if pieces is PIECES:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / SENTENCEPIECE_FILE))
        again = [processor.decode(line.split()) for line in lines]
    assert again == expected
    assert any(" " in line for line in lines)


@pytest.mark.parametrize(("side", "unsplit_word"), [("source", "GREEN"), ("target", "green")])
def test_merges_of_one_side_leave_the_others_letters_apart(texts, tmp_path: Path, side: str, unsplit_word: str) -> None:
    merges = MergeVocabulary(kind="subword_nmt", merges=20, learned_from=side)
    merges.learn(texts, tmp_path)
    assert (tmp_path / SUBWORD_NMT_FILE).read_text().count("\n") == 21  # a line for the version
    assert divide_lines("subword_nmt", tmp_path / SUBWORD_NMT_FILE, [unsplit_word]) == [
        " ".join(f"{letter}@@" for letter in unsplit_word[:-1]) + f" {unsplit_word[-1]}"
    ]


def test_merges_of_each_side_divide_its_own_text(texts: list[Path], tmp_path: Path) -> None:
    """The source's lie where a model finds them."""
    merges = MergeVocabulary(kind="subword_nmt", merges=40, learned_from="each", joined=False)
    merges.learn(texts, tmp_path)
    assert divide_lines("subword_nmt", tmp_path / SUBWORD_NMT_FILE, ["green GREEN"]) == ["green G@@ R@@ E@@ E@@ N"]
    assert list(encode_text(merges, tmp_path, texts[1], 1, of_target=True)) == texts[1].read_text().splitlines()


def test_names_of_symbols_are_unknown_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("<pad> a </s> <unk> a<pad>\n<s>\n")
    lines = encode_text(WordVocabulary(kind="words"), tmp_path, tmp_path / "text", 1)
    assert list(lines) == ["<unk> a <unk> <unk> a<pad>", "<unk>"]


def test_the_same_text_gives_the_same_bytes_which_name_no_folder(texts: list[Path], tmp_path: Path) -> None:
    models = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        copies = [shutil.copy(text, tmp_path / name) for text in texts]
        PieceVocabulary(kind="sentencepiece", size=60, fewer=True).learn(list(map(Path, copies)), tmp_path / name)
        models.append((tmp_path / name / "sentencepiece.bpe.model").read_bytes())
    assert models[0] == models[1]
    assert str(tmp_path).encode() not in models[0]


def test_pieces_of_a_long_text_are_learned_from_a_part_of_it(texts: list[Path], tmp_path: Path, monkeypatch) -> None:
    """The same lines each time; of a text that is short enough, all of them, and the model does not mention it."""

    def learn(lines: int) -> bytes:
        monkeypatch.setattr(vocabulary, "LINES", lines)
        PieceVocabulary(kind="sentencepiece", size=60, fewer=True).learn(texts, tmp_path)
        return (tmp_path / SENTENCEPIECE_FILE).read_bytes()

    assert learn(120) == learn(120)
    assert learn(360) == learn(1_000_000) != learn(359)


def test_progress_is_printed_while_pieces_are_learned(texts: list[Path], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(console, "REPORT_INTERVAL", -1.0)
    for pieces in (MERGES, PIECES):
        pieces.learn(texts, tmp_path)
        assert "  lines read, to learn pieces: 360\n" in capsys.readouterr().err
    MERGES.learn(texts, tmp_path)
    assert "  merges learned: 20 of 20\n" in capsys.readouterr().err


def test_lower_case_pieces_are_learned_of_long_lines_too_and_fewer_than_asked_for(tmp_path: Path) -> None:
    text = tmp_path / "train"
    text.write_text("a word in a short line\n" * 50 + f"{'Πρωτα λογια ' * 400}\n" * 50, encoding="utf-8")
    with pytest.raises(RuntimeError, match="Vocabulary size too high"):
        PieceVocabulary(kind="sentencepiece_lowercase", size=500).learn([text], tmp_path)
    PieceVocabulary(kind="sentencepiece_lowercase", size=500, fewer=True).learn([text], tmp_path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / SENTENCEPIECE_FILE))
    assert processor.unk_id() not in processor.encode("πρωτα λογια")
