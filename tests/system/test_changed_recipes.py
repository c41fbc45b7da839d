"""A preparation makes anew what depends on a change, and nothing else."""

import gzip
import re
import shutil
from pathlib import Path

import pytest
from programs_here import start_programs_here
from recipes_for_tests import Runner, publish, tree

NAME = "multi30k_en_de"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    start_programs_here(monkeypatch)
    return Runner(NAME, tmp_path, monkeypatch)


def made(folder: Path) -> dict[str, bytes]:
    """What preparation has made but for files that tell the time."""
    others = (".log", ".verified", ".tmp", "manifest.jsonl")
    return {name: content for name, content in tree(folder).items() if not name.endswith(others)}


def steps_done(output: str) -> list[str]:
    """Those that were not left out as done."""
    return re.findall(r"^== ([\w ]+)$", output, re.MULTILINE)


def test_only_what_depends_on_a_change_is_made_anew(run: Runner, monkeypatch, capsys) -> None:
    def prepared() -> list[str]:
        assert run("prepare") == 0
        return steps_done(capsys.readouterr().out)

    assert prepared() == ["corpus", "pieces", "binarise"]
    assert prepared() == []
    (run.raw / "another.tgz").write_bytes(b"of another recipe")
    assert prepared() == []
    run.change("vocabulary", merges=200)
    assert prepared() == ["pieces", "binarise"]
    assert (run.data / "pieces" / "bpecodes").read_text().count("\n") == 201
    shutil.rmtree(run.data / "pieces")
    assert prepared() == ["pieces"]

    before = made(run.data)
    path = run.files["multi30k_test_2016_flickr_de"]
    text = gzip.decompress(path.read_bytes()).decode()
    path.write_bytes(gzip.compress(text.replace(".", " !", 1).encode()))
    assert run("prepare") == 2
    assert "sha256" in capsys.readouterr().err
    assert made(run.data) == before
    publish(run.files, monkeypatch)
    assert prepared() == ["corpus", "pieces", "binarise"]
    changed = {name for name, content in made(run.data).items() if before[name] != content}
    assert {name for name in changed if name.startswith(("corpus", "pieces/"))} == {
        *("corpus/test.de", "corpus/raw.test.de", "pieces/test.de"),
    }
