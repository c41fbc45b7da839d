"""What is wrong with raw files, the disk or the data of an earlier recipe is said in one line, and nothing is lost."""

import errno
import gzip
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked_commands import run_quickly
from recipes_for_tests import Runner, publish, tree
from summarisation_stand_in import pack

from ode_transformer.cli import main
from ode_transformer.corpora.corpus import SplitWriter

Spoil = Callable[[dict[str, Path]], object]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[int], str]:
    """The one line that tells what is wrong."""

    def line(status: int) -> str:
        assert status == 2
        errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line.lower()]
        assert len(errors) == 1
        return errors[0]

    return line


def rewritten(path: Path, change: Callable[[str], str]) -> None:
    """Changes the text of a compressed file."""
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()).decode()).encode()))


def without_last_line(text: str) -> str:
    return text[: text.rindex("\n", 0, -1) + 1]


def lose_a_member(archive: Path) -> None:
    with tarfile.open(archive) as old:
        kept = {
            member.name: old.extractfile(member).read() for member in old if "train.tags.de-en.en" not in member.name
        }
    pack(archive, kept.items())


SPOILT: dict[str, tuple[str, Spoil, str]] = {
    "missing": (
        "multi30k_en_de",
        lambda files: files["multi30k_val_de"].unlink(),
        r"--raw \S+/raw: missing there: multi30k/val\.de\.gz \(https://\S+\)$",
    ),
    "sides of different length": (
        "multi30k_en_de",
        lambda files: rewritten(files["multi30k_train_de"], without_last_line),
        r"sides of different length: \S+/train\.en\.gz has 40, \S+/train\.de\.gz has 39$",
    ),
    "another pair of languages": (
        "wmt16_en_ro",
        lambda files: rewritten(files["setimes2_en_ro"], lambda text: text.replace('"ro"', '"bg"')),
        r"SETIMES\.en-ro\.tmx\.gz: unit 1 is not in ro, but in en, bg$",
    ),
    "no member of this name": (
        "iwslt14_de_en",
        lambda files: lose_a_member(files["iwslt14_de_en"]),
        r"iwslt14-de-en\.tgz: no de-en/train\.tags\.de-en\.en in it; there is de-en/train\.tags\.de-en\.de",
    ),
    "cut off": (
        "multi30k_en_de",
        lambda files: files["multi30k_train_en"].write_bytes(files["multi30k_train_en"].read_bytes()[:-20]),
        r"train\.en\.gz: cannot be read to its end",
    ),
    "another encoding": (
        "iwslt15_vi_en",
        lambda files: files["iwslt15_tst2012_vi"].write_bytes("Phố cổ.\n".encode("utf-16")),
        r"tst2012\.vi: line 1 is not UTF-8",
    ),
}


@pytest.mark.parametrize(("name", "spoil", "message"), SPOILT.values(), ids=SPOILT)
def test_raw_files_that_are_not_right(
    name: str, spoil: Spoil, message: str, tmp_path: Path, monkeypatch, refused
) -> None:
    run = Runner(name, tmp_path, monkeypatch)
    spoil(run.files)
    publish({name: path for name, path in run.files.items() if path.exists()}, monkeypatch)
    line = refused(run("prepare"))
    assert re.search(message, line), line
    assert {name for name in tree(run.output) if not name.endswith((".verified", "raw.json", "recipe.txt"))} == set()


def test_another_file_of_the_same_name(tmp_path: Path, monkeypatch, refused) -> None:
    run = Runner("multi30k_en_de", tmp_path, monkeypatch)
    path = run.files["multi30k_train_de"]
    rewritten(path, lambda text: text.replace("Zug", "Bus"))
    line = refused(run("prepare"))
    assert line.startswith(f"ode-transformer prepare: error: {path}: sha256 ")
    assert line.endswith("(from the test)")
    assert not run.data.exists()


def test_too_little_room_for_downloads(tmp_path: Path, monkeypatch, refused) -> None:
    run = Runner("multi30k_en_de", tmp_path, monkeypatch)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    line = refused(main(["prepare", str(run.path), "--output", str(run.output)]))
    assert line.startswith(f"ode-transformer prepare: error: {run.output / 'raw'}: 0.0 MB are to be downloaded, and ")
    assert tree(run.output) == {}


def test_a_disk_that_is_full_amid_a_step(tmp_path: Path, monkeypatch, refused) -> None:
    run_quickly(monkeypatch)
    run = Runner("wmt16_en_ro", tmp_path, monkeypatch)
    add = SplitWriter.add

    def until_full(self: SplitWriter, *example: object) -> None:
        if step in str(self.folder) and self.counts["train"] == 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, *example)

    for step in ("corpus", "pieces"):
        with monkeypatch.context() as full:
            full.setattr(SplitWriter, "add", until_full)
            line = refused(run("prepare"))
        reason = "could not be written ([Errno 28] No space left on device)"
        assert line == f"ode-transformer prepare: error: {run.data / step}: {reason}"
        assert not [name for name in tree(run.data) if step in name]
    assert run("prepare") == 0


def test_data_of_another_vocabulary(tmp_path: Path, monkeypatch, refused) -> None:
    run_quickly(monkeypatch)
    run = Runner("multi30k_en_de", tmp_path, monkeypatch)
    assert run("prepare") == run("train") == 0
    before = tree(run.output)
    run.change("vocabulary", merges=100)
    for action in ("train", "evaluate"):
        line = refused(run(action))
        assert line.startswith(
            f"ode-transformer {action}: error: {run.data / 'pieces'}: made for a recipe with another pieces than "
        )
        assert tree(run.output) == before
    assert run("prepare") == 0
    before = tree(run.output)
    folder = run.data / "ode_transformer_rk2_tiny"
    for action in ("train", "evaluate"):
        line = refused(run(action))
        assert line.startswith(f"ode-transformer {action}: error: {folder}: of a training with other flags or data, ")
        assert tree(run.output) == before
    shutil.rmtree(folder)
    assert run("train") == run("evaluate") == 0
