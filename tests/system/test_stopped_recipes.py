"""A recipe that is killed anywhere goes on with the same command to the same bytes, and makes anew what has to be."""

import gzip
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands_for_tests import parameters
from forked_commands import Forked, inherit, run_quickly
from killed_commands import kill_command, start_command
from recipes_for_tests import Runner, publish, tree

from ode_transformer.lab.corpora.corpus import SplitWriter
from ode_transformer.support import commands

NAME = "multi30k_en_de"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    run_quickly(monkeypatch)
    return Runner(NAME, tmp_path, monkeypatch)


def made(folder: Path) -> dict[str, bytes]:
    """What preparation has made; logs tell the time, and the manifest what was interrupted."""
    others = (".log", ".verified", ".tmp", "manifest.jsonl")
    return {name: content for name, content in tree(folder).items() if not name.endswith(others)}


def killed(run: Runner, arrange: Callable[[pytest.MonkeyPatch], object]) -> None:
    """Prepares in a process that is killed, as was arranged within it."""
    if (process := os.fork()) == 0:
        try:
            inherit()
            arrange(pytest.MonkeyPatch())
            run("prepare")
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Callable, moment: int, before: bool) -> Callable:
    """A function in whose call of this number the process is killed, before or after its work."""
    calls = 0

    def called(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls == moment and before:
            die()
        result = function(*arguments, **named)
        if calls == moment:
            die()
        return result

    return called


def amid_binarisation(patch: pytest.MonkeyPatch) -> None:
    """One file is half there, the others of the target side not at all."""

    class Torn(Forked):
        def __enter__(self):
            super().__enter__().wait()
            folder = Path(self.words[self.words.index("--destdir") + 1])
            for file in folder.glob("*.de.*"):
                file.unlink()
            torn = folder / "train.en-de.en.bin"
            torn.write_bytes(torn.read_bytes()[:50])
            die()

    patch.setattr(commands.subprocess, "Popen", Torn)


def test_killed_amid_each_step(run: Runner) -> None:
    assert run("prepare") == 0
    whole = made(run.data)
    lines = sum(json.loads(whole["counts.json"]).values())
    for name, arrange in {
        "corpus": lambda patch: patch.setattr(SplitWriter, "add", dying(SplitWriter.add, lines // 2, False)),
        "pieces": lambda patch: patch.setattr(SplitWriter, "add", dying(SplitWriter.add, lines + lines // 2, False)),
        "binarise": amid_binarisation,
    }.items():
        run.output = run.folder / name
        run.data = run.output / NAME
        killed(run, arrange)
        assert made(run.data) != whole
        assert run("prepare") == 0
        assert made(run.data) == whole


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


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_to_the_same_end(run: Runner) -> None:
    assert run("prepare") == 0
    run.change("train", max_update=40)
    command = ["train", run.path, "--output", run.output, "--gpus", 0]
    folder = run.data / "ode_transformer_rk2_tiny"
    kill_command(command, lambda: bool(list(folder.glob("checkpoints/checkpoint[0-9]*.pt"))))
    resumed = start_command(command)
    resumed.join()
    assert resumed.exitcode == 0
    assert "Loaded checkpoint" in (folder / "train.log").read_text()
    folder.rename(run.folder / "stopped")
    assert run("train") == 0
    stopped, straight = (
        parameters(place / "checkpoints/checkpoint_last.pt") for place in (run.folder / "stopped", folder)
    )
    assert straight.keys() == stopped.keys()
    assert all(torch.equal(straight[name], stopped[name]) for name in straight)
