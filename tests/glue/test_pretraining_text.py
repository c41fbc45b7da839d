"""Plain text to fairseq's data: documents, the held-out share, pieces, resumption, bad files."""

import gzip
from pathlib import Path

import pytest
from forked_commands import run_quickly

from ode_transformer.cli import main
from ode_transformer.corpora.text_corpora import documents, write_splits
from ode_transformer.corpora.vocabulary import train_pieces_of_long_text
from ode_transformer.support.files import lock_directory
from ode_transformer.support.subword_encoder import SubwordEncoder


def test_blank_lines_divide_documents_and_so_do_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n one \n\ntwo\nthree\n\n\n")
    (tmp_path / "b").write_text("four\nfive\n\nsix")
    assert list(documents([tmp_path / "a", tmp_path / "b"])) == [["one"], ["two", "three"], ["four", "five"], ["six"]]


def test_without_blank_lines_a_line_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    assert list(documents([tmp_path / "a"])) == [["one"], ["two"]]
    (tmp_path / "b").write_text("three\nfour\n\nfive\n")
    divided = [["three", "four"], ["five"]]
    assert list(documents([tmp_path / "a", tmp_path / "b"])) == [["one"], ["two"], *divided]
    assert list(documents([tmp_path / "b", tmp_path / "a"])) == [*divided, ["one"], ["two"]]
    (tmp_path / "b.gz").write_bytes(gzip.compress((tmp_path / "b").read_bytes()))
    assert list(documents([tmp_path / "b.gz"])) == divided


def test_whole_documents_are_held_out(tmp_path: Path) -> None:
    texts = [f"first {number}\nsecond {number}" for number in range(400)]
    (tmp_path / "a").write_text("\n\n".join(texts))
    write_splits([tmp_path / "a"], 0.1, tmp_path)
    parts = [(tmp_path / split).read_text().strip().split("\n\n") for split in ("train", "valid")]
    assert sorted(parts[0] + parts[1]) == sorted(texts)
    assert 20 < len(parts[1]) < 60


def test_pieces_fold_case_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"The Old House, the old house {n}\n" for n in range(300)))
    for cased, equal in ((False, True), (True, False)):
        train_pieces_of_long_text([tmp_path / "text"], 34, cased, tmp_path)
        encode = SubwordEncoder("sentencepiece", tmp_path / "sentencepiece.bpe.model").encode
        assert (encode("The Old House") == encode("the old house")) == equal
        assert "\n" not in encode("one\u2028two")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xe4d\n", "a: line 2 is not UTF-8"),
        (b"one line\n", "no document for the valid split"),
        (b"\n\n", "no document for the train split"),
        (None, "a: missing"),
    ],
)
def test_a_bad_text_is_one_line(tmp_path: Path, capsys, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    assert main(["pretraining-text", str(tmp_path / "a"), "--output", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out" / "text").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text/a", "a: a text in a folder that is replaced"),
        ("a", "data-bin: no preparation has made it, and this one would replace it"),
    ],
)
def test_folders_of_the_user_are_kept(tmp_path: Path, capsys, name: str, message: str) -> None:
    files = [tmp_path / name, tmp_path / "data-bin" / "mine.bin"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"word {number}\n" for number in range(500)))
    assert main(["pretraining-text", str(files[0]), "--output", str(tmp_path), "--pieces", "40"]) == 2
    assert message in capsys.readouterr().err
    assert all(file.exists() for file in files)


def test_too_many_pieces(tmp_path: Path, capsys) -> None:
    (tmp_path / "a").write_text("".join(f"word {number}\n" for number in range(500)))
    assert main(["pretraining-text", str(tmp_path / "a"), "--output", str(tmp_path / "out"), "--pieces", "9000"]) == 2
    assert "vocabulary of 9000 pieces from" in capsys.readouterr().err


def test_the_folder_is_locked(tmp_path: Path, capsys) -> None:
    (tmp_path / "a").write_text("a text\n" * 500)
    with lock_directory(tmp_path / "out", "preparing data"):
        assert main(["pretraining-text", str(tmp_path / "a"), "--output", str(tmp_path / "out")]) == 2
    assert "out: another process is preparing data here" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_finished_jobs_are_skipped(tmp_path: Path, capfd, monkeypatch) -> None:
    run_quickly(monkeypatch)
    (tmp_path / "a").write_text("".join(f"Word {number} of 500\n" for number in range(500)))
    arguments = [str(tmp_path / "a"), "--output", str(tmp_path / "out"), "--pieces", "40", "--valid-fraction", "0.1"]
    assert main(["pretraining-text", *arguments]) == 0
    files = {path.name for path in (tmp_path / "out" / "data-bin").iterdir()}
    assert {"dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx", "sentencepiece.bpe.model"} <= files
    capfd.readouterr()
    assert main(["pretraining-text", *arguments]) == 0
    assert capfd.readouterr().out.count("already done") == 3
    (tmp_path / "a").write_text("".join(f"Another {number} of 400\n" for number in range(400)))
    assert main(["pretraining-text", *arguments]) == 0
    assert "already done" not in capfd.readouterr().out
