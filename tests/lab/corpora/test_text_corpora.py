"""Corpora for language models: plain text, documents, and Mikolov's Penn Treebank."""

import gzip
from pathlib import Path

from ptb_stand_in import SENTENCES, TYPES, sentences, write_raw

from ode_transformer.lab.corpora.text_corpora import DocumentCorpus, PennTreebankCorpus, PlainTextCorpus, documents
from ode_transformer.support.lines import read_lines


def test_the_archive_and_separate_files_are_the_same_text(tmp_path: Path) -> None:
    raw, corpus = write_raw(tmp_path), PennTreebankCorpus(types=TYPES)
    assert corpus.build({"ptb": raw.pop("ptb")}, tmp_path / "one", 1) == SENTENCES
    raw["ptb_train"].write_bytes(gzip.compress(raw["ptb_train"].read_bytes()))
    assert corpus.build(raw, tmp_path / "other", 1) == SENTENCES
    for folder in ("one", "other"):
        for split in SENTENCES:
            assert read_lines(tmp_path / folder / f"{split}.txt") == [line.strip() for line in sentences(split)]
    del raw["ptb_test"]
    assert corpus.build(raw, tmp_path / "without", 1) == {split: SENTENCES[split] for split in ("train", "valid")}


def test_plain_text_and_documents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(
        "one  line\n\nof\ttwo\n" + "".join(f"\nnumber {number}\nnext\n" for number in range(99))
    )
    plain = PlainTextCorpus(kind="text", train=["a", "a"], valid=["a"], test={"t": ["a"]})
    files = {"a": tmp_path / "a"}
    assert plain.build(files, tmp_path / "plain", 1) == {"train": 400, "valid": 200, "test": 200}
    assert read_lines(tmp_path / "plain" / "test.txt")[:3] == ["one line", "of two", "number 0"]
    corpus = DocumentCorpus(texts=["a"], valid_fraction=0.2)
    counts = corpus.build(files, tmp_path / "documents", 1)
    texts = {split: read_lines(tmp_path / "documents" / f"{split}.txt") for split in ("train", "valid")}
    assert counts == {split: len(lines) for split, lines in texts.items()}
    assert sum(line.startswith("number") for line in texts["train"] + texts["valid"]) == 99
    assert 5 < sum(line.startswith("number") for line in texts["valid"]) < 40


def test_blank_lines_divide_documents_and_so_do_files(tmp_path: Path) -> None:
    """In a text without inner blank lines, every line is a document."""
    (tmp_path / "a").write_text("\n one \n\ntwo\nthree\n\n\n")
    (tmp_path / "b").write_text("four\nfive\n")
    assert list(documents([tmp_path / "a", tmp_path / "b"])) == [["one"], ["two", "three"], ["four"], ["five"]]
