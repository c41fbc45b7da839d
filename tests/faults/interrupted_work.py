"""The pieces of work that are interrupted: each from the same inputs to the same files."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from checkpoint_for_tests import make_model
from commands_for_tests import PAIRS
from forked_commands import IMPORTED, start_commands_in_forks
from interruptions import CLOCKS, ERRORS, SIZE_LIMITS, Fault, Outcome, run_in_fork
from recipes_for_tests import Runner, publish
from released_checkpoints import released

import ode_transformer.models  # noqa: F401  (before the fork: fairseq finds the architectures in every process)
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.command import main

# Files that hold times, or digests of times; two uninterrupted runs differ in them, too.
TIMED = (".log", ".done", ".verified", "trained.json", "results.md", "results.csv", "results.png", "report.html")


LARGE = 16_384  # bytes; a limit below would also cut off what a process prints


class Interruptible(ABC):
    """Work that is done again and again in one folder, which is emptied before.

    :param folder: for inputs and results; made here
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.inputs, self.results = folder, folder / "inputs", folder / "results"
        self.inputs.mkdir(parents=True, exist_ok=True)
        self.make_inputs()

    @abstractmethod
    def make_inputs(self) -> None:
        """Write what the work reads."""

    @abstractmethod
    def work(self) -> int:
        """Do the work from ``inputs`` into ``results`` and return its exit status."""

    def begin(self) -> None:
        """Empty the folder of results."""
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir()

    @cached_property
    def uninterrupted(self) -> tuple[Outcome, dict[str, Any]]:
        """The outcome without a fault, and the files that it leaves."""
        self.begin()
        outcome = run_in_fork(self.work, self.results)
        assert outcome.status == 0, outcome.output
        assert outcome.changes
        return outcome, snapshot(self.results)

    def result_files(self) -> list[Path]:
        """Return the files in ``results`` that are compared byte by byte, and checkpoints."""
        return [path for path in self.results.rglob("*") if path.is_file() and not path.name.endswith(TIMED)]

    def check(self, fault: Fault) -> None:
        """Strike by ``fault``, run the same command again, and compare with the uninterrupted run.

        :raises AssertionError: the fault passed unnoticed, was not reported in one line, or left other files
        """
        outcome, _ = self.uninterrupted
        self.begin()
        struck = run_in_fork(self.work, self.results, fault)
        where = f"{fault} of {len(outcome.changes)}: {outcome.changes[min(fault.at, len(outcome.changes)) - 1]}"
        assert (struck.status == 0) == (fault.kind in CLOCKS), f"{where}\n{struck.output}"
        if fault.kind not in ("kill", "terminate", "torn"):
            assert "Traceback" not in struck.output, f"{where}\n{struck.output}"
        if fault.kind == "interrupt":
            assert struck.status == 130, f"{where}: {struck.status}\n{struck.output}"
        again = run_in_fork(self.work, self.results)
        assert again.status == 0, f"{where}\n{again.output}"
        self.compare(where)

    def check_two_at_once(self) -> None:
        """Start the same command twice at once: one of them may refuse in one line, and the files are as of one.

        :raises AssertionError: both failed, one failed otherwise, or the files differ
        """
        self.begin()
        others: list[Outcome] = []
        first = run_in_fork(self.work, self.results, meanwhile=lambda: self._append_outcome(others))
        outcomes = [first, *others]
        assert any(outcome.status == 0 for outcome in outcomes), "\n".join(outcome.output for outcome in outcomes)
        for outcome in outcomes:
            assert outcome.status in (0, 2), outcome.output
            assert "Traceback" not in outcome.output, outcome.output
        self.compare("two at once")

    def _append_outcome(self, outcomes: list[Outcome]) -> int:
        outcomes.append(run_in_fork(self.work, self.results))
        return 0

    def compare(self, where: str) -> None:
        """Hold the files in ``results`` against those of the uninterrupted run."""
        files, resumed = self.uninterrupted[1], snapshot(self.results)
        assert resumed.keys() == files.keys(), f"{where}: {sorted(resumed.keys() ^ files.keys())}"
        different = [name for name in files if resumed[name] != files[name]]
        assert not different, f"{where}: {different}"


def snapshot(folder: Path) -> dict[str, Any]:
    """Return every file below ``folder`` by name: its bytes, of a checkpoint what it holds, of a log that it exists."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or "tensorboard/" in name:
            continue
        if name.endswith(TIMED):
            files[name] = None
        elif path.suffix == ".pt":
            files[name] = checkpoint_contents(path)
        else:
            files[name] = path.read_bytes()
    return files


def checkpoint_contents(path: Path) -> list[tuple[str, bytes]]:
    """Return parameters and the optimizer's state of a checkpoint as bytes; the rest of it tells times and paths."""
    state = load_checkpoint(path)
    tensors = list(state["model"].items())
    for number, moments in (state.get("last_optimizer_state") or {}).get("state", {}).items():
        tensors += [(f"{number}.{name}", value) for name, value in moments.items() if isinstance(value, torch.Tensor)]
    return [(name, value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()) for name, value in tensors]


class Averaging(Interruptible):
    """``average`` over three checkpoints."""

    def make_inputs(self) -> None:
        make_model(self.inputs)
        state = load_checkpoint(self.inputs / "model.pt")
        for epoch in range(1, 4):
            state["model"] = {
                name: value * epoch if value.is_floating_point() else value for name, value in state["model"].items()
            }
            save_checkpoint(state, self.inputs / f"checkpoint{epoch}.pt")

    def work(self) -> int:
        return main(["average", str(self.inputs), "--last", "3", "--output", str(self.results / "mean.pt")])


class Conversion(Interruptible):
    """``convert``: export of a checkpoint of the authors' released code under our names."""

    def make_inputs(self) -> None:
        options, parameters = released()
        torch.save({"args": options, "model": parameters}, self.inputs / "released.pt")

    def work(self) -> int:
        return main(["convert", str(self.inputs / "released.pt"), "--output", str(self.results / "ours.pt")])


class Translation(Interruptible):
    """``translate`` of three lines into a file."""

    def make_inputs(self) -> None:
        make_model(self.inputs)
        (self.inputs / "text.en").write_text("".join(f"{source}\n" for source, _ in PAIRS[:3]), encoding="utf-8")

    def work(self) -> int:
        words = ["--path", self.inputs / "model.pt", "--input", self.inputs / "text.en", "--max-len-b", "8"]
        return main(["translate", *map(str, words), "--output", str(self.results / "text.de")])


class Preparation(Interruptible):
    """``prepare`` of a small recipe, by fairseq's own commands."""

    recipe = "multi30k_en_de"

    def make_inputs(self) -> None:
        for name in (*IMPORTED, "matplotlib.pyplot"):  # once, and not in every fork
            import_module(name)
        shutil.rmtree(self.inputs)
        self.inputs.mkdir()
        patch = pytest.MonkeyPatch()
        self.run = Runner(self.recipe, self.inputs, patch)
        patch.undo()
        self.run.output = self.results
        self.run.data = self.results / self.recipe

    def work(self) -> int:
        return self.perform("prepare")

    def perform(self, action: str) -> int:
        """Run a command of recipes in this process, and its commands of fairseq in forks."""
        start_commands_in_forks()
        publish(self.run.files, pytest.MonkeyPatch())  # undone by the end of the process
        return self.run(action)


class Training(Preparation):
    """``train`` of a small recipe whose data are prepared: four updates, a checkpoint at each."""

    def make_inputs(self) -> None:
        super().make_inputs()
        self.run.change("train", max_update=4)
        self.results.mkdir(exist_ok=True)
        prepared = run_in_fork(lambda: self.perform("prepare"), self.results)
        assert prepared.status == 0, prepared.output
        shutil.move(self.results, self.folder / "prepared")

    def work(self) -> int:
        return self.perform("train")

    def begin(self) -> None:
        shutil.rmtree(self.results, ignore_errors=True)
        shutil.copytree(self.folder / "prepared", self.results)


class Study(Training):
    """``study`` of two systems, the first of them trained: training, decoding and scores of the second, the table."""

    def make_inputs(self) -> None:
        super().make_inputs()
        self.run.change("train", max_update=1, log_interval=1)
        study = {
            **{"title": "Two systems", "source": "none", "seeds": [1]},
            "systems": [
                {"name": "Euler", "arch": "ode_transformer_euler_tiny"},
                {"name": "Heun", "arch": "ode_transformer_rk2_tiny", "flags": {"ode-coefficients": "tableau"}},
            ],
            "settings": {"here": {"recipe": str(self.run.path)}},
        }
        self.path = self.inputs / "two.yaml"
        self.path.write_text(yaml.safe_dump(study), encoding="utf-8")
        self.begin()
        trained = run_in_fork(lambda: self.study("--systems", "Euler"), self.results)
        assert trained.status == 0, trained.output
        shutil.rmtree(self.results / "studies")
        shutil.rmtree(self.folder / "prepared")
        shutil.move(self.results, self.folder / "prepared")

    def work(self) -> int:
        return self.study()

    def study(self, *words: str) -> int:
        """Run the study with further options."""
        start_commands_in_forks()
        publish(self.run.files, pytest.MonkeyPatch())
        folders = ["--output", self.results, "--raw", self.run.raw]
        return main(["study", *map(str, [self.path, *folders, "--workers", 1, "--gpus", 0, *words])])


WORKS: dict[str, type[Interruptible]] = {
    "average": Averaging,
    "convert": Conversion,
    "translate": Translation,
    "prepare": Preparation,
    "train": Training,
    "study": Study,
}


def points_of(work: Interruptible, kind: str, most: int | None = None) -> list[int]:
    """Return where a fault of this kind can strike: numbers of changes, or for a limit of size half of each large file.

    :param most: only so many of them, in the middle of as many equal parts
    """
    outcome, _ = work.uninterrupted
    if kind in SIZE_LIMITS:
        points = sorted({path.stat().st_size // 2 for path in work.result_files() if path.stat().st_size > LARGE})
    elif kind == "read-only":
        points = [1]
    else:
        opening = [change.startswith(("open ", "mkdir ")) for change in outcome.changes]
        points = [number for number, opens in enumerate(opening, 1) if opens or kind not in ERRORS]
    if most is None or most >= len(points):
        return points
    return [points[(2 * part + 1) * len(points) // (2 * most)] for part in range(most)]
