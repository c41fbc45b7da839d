"""Penn Treebank: from Mikolov's files to a corpus."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from commands_for_tests import succeed
from ptb_stand_in import SENTENCES, TYPES, sentences, write_raw

from ode_transformer.corpora.text_corpora import PennTreebankCorpus
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import read_lines

OPTIONS = PennTreebankCorpus(types=TYPES)
PUBLISHED = Path(os.environ.get("ODE_DATA_DIR", Path(__file__).parents[3] / "shared" / "data")) / "ptb"


@pytest.fixture
def raw(tmp_path: Path) -> dict[str, Path]:
    return write_raw(tmp_path)


def select(raw: dict[str, Path], *names: str) -> dict[str, Path]:
    return {name: raw[name] for name in names}


def test_the_archive_and_separate_files_are_the_same_text(raw: dict[str, Path], tmp_path: Path) -> None:
    assert OPTIONS.build(select(raw, "ptb"), tmp_path / "one", 1) == SENTENCES
    assert OPTIONS.build(select(raw, "ptb_train", "ptb_valid", "ptb_test"), tmp_path / "other", 1) == SENTENCES
    for folder in ("one", "other"):
        for split in SENTENCES:
            assert read_lines(tmp_path / folder / f"{split}.txt") == [line.strip() for line in sentences(split)]


def test_compressed_and_without_a_test_set(
    raw: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ptb_train", "ptb_valid"):
        raw[name].write_bytes(gzip.compress(raw[name].read_bytes()))
    counts = OPTIONS.build(select(raw, "ptb_train", "ptb_valid"), tmp_path / "corpus", 1)
    assert counts == {split: SENTENCES[split] for split in ("train", "valid")}
    assert {path.name for path in (tmp_path / "corpus").iterdir()} == {"train.txt", "valid.txt"}
    assert capsys.readouterr().err == "no ptb_test: the corpus has no test split\n"


def append(raw: dict[str, Path], name: str, line: str) -> None:
    with open(raw[name], "a") as file:
        file.write(line)


BROKEN = {
    "another word": (lambda raw: append(raw, "ptb_test", " the cat said N \n"), "line 21: 'cat' is no word of the"),
    "an empty line": (lambda raw: append(raw, "ptb_valid", " \n"), "ptb.valid.txt: line 21 is empty"),
    "too many types": (
        lambda raw: append(raw, "ptb_train", "cat\n"),
        f"ptb.train.txt: {TYPES + 1} types; Mikolov's text has {TYPES}, <unk> among them",
    ),
    "no unknown words": (
        lambda raw: raw["ptb_train"].write_text(raw["ptb_train"].read_text().replace("<unk>", "rare")),
        f"ptb.train.txt: {TYPES} types, without <unk>; Mikolov's",
    ),
    "not UTF-8": (lambda raw: raw["ptb_train"].write_bytes(b"caf\xe9\n"), "ptb.train.txt: line 1 is not UTF-8"),
    "empty": (lambda raw: raw["ptb_train"].write_bytes(b""), "ptb.train.txt: 0 types, without <unk>"),
    "an empty validation text": (
        lambda raw: raw["ptb_valid"].write_bytes(b""),
        "ptb.valid.txt: no example for the valid split",
    ),
    "no validation text": (lambda raw: raw.pop("ptb_valid"), "no ptb_valid; ptb, the archive, would do instead"),
}


@pytest.mark.parametrize(("spoil", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_raw_files(raw: dict[str, Path], tmp_path: Path, spoil, message: str) -> None:
    raw.pop("ptb")
    spoil(raw)
    with pytest.raises(UserError, match=message):
        OPTIONS.build(raw, tmp_path / "corpus", 1)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="$ODE_DATA_DIR has no Penn Treebank")
def test_the_published_text(tmp_path: Path) -> None:
    names = {"ptb_train": "ptb.train.txt.gz", "ptb_valid": "ptb.valid.txt.gz"}
    files = {name: PUBLISHED / file for name, file in names.items()}
    counts = PennTreebankCorpus().build(files, tmp_path / "corpus", 1)
    assert counts == {"train": 42_068, "valid": 3_370}
    tokens = {split: " ".join(read_lines(tmp_path / "corpus" / f"{split}.txt")).split() for split in counts}
    assert (len(tokens["train"]), len(tokens["valid"])) == (887_521, 70_390)
    prefixes = [word for split in counts for word in (f"--{split}pref", tmp_path / "corpus" / f"{split}.txt")]
    succeed("preprocess", "--only-source", *prefixes, "--destdir", tmp_path / "data", "--padding-factor", 1)
    # 9,999 types, of which <unk> is fairseq's own symbol
    dictionary = read_lines(tmp_path / "data" / "dict.txt")
    assert len(dictionary) == 9_998
    assert not any(line.startswith("<unk> ") for line in dictionary)
    assert "valid.txt: 3370 sents, 73760 tokens, 0.0% replaced" in (tmp_path / "data" / "preprocess.log").read_text()
