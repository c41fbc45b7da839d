"""A command that is struck while it writes ends, started again, with the same files as without the fault.

Python announces every opening, rename and removal of a file to audit hooks before it happens. A hook in a forked
process counts those below one folder, and strikes in the middle of them.
"""

import errno
import faulthandler
import gc
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoint_for_tests import make_model
from fairseq import checkpoint_utils
from plain_models import PAIRS
from programs_here import start_programs_here
from recipes_for_tests import Runner, publish
from released_checkpoints import released

import ode_transformer.models  # noqa: F401  (before the fork: fairseq finds the architectures in every process)
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.command import main

SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that change the file system, with the number of their argument that holds the changed path.
CHANGES = {"open": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0, "os.truncate": 0}
TIME_LIMIT = 100  # seconds
IMPORTED = (
    "fairseq_cli.preprocess",
    "fairseq_cli.train",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "matplotlib.pyplot",
)
# Files that hold times, or digests of times; two uninterrupted runs differ in them, too.
TIMED = (".log", "manifest.jsonl", ".verified", "trained.json", "results.md", "report.html")

Work = Callable[[], int]  # returns an exit status, as the command line does


def run_in_fork(work: Work, folder: Path, output: Path, fault: str = "", at: int = 0) -> tuple[int, int]:
    """Run ``work`` in a forked process.

    :param folder: only changes below it count
    :param output: file for standard output and standard error
    :param at: number of the change at which the fault strikes; bytes for "file too long"
    :return: exit status, minus the number of the signal that ended the process; number of changes
    """
    record = os.memfd_create("changes")  # a byte for each, also of forks of the fork
    if (process := os.fork()) == 0:
        status = 99
        try:
            gc.freeze()  # what is freed here may wait for threads that a fork has not
            os.setsid()
            stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            for number in (1, 2):
                os.dup2(stream, number)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
            if fault == "file too long":  # the write fails with EFBIG
                resource.setrlimit(resource.RLIMIT_FSIZE, (at, resource.RLIM_INFINITY))
                checkpoint_utils.time = SimpleNamespace(sleep=lambda seconds: None)  # fairseq tries again, and again
            sys.addaudithook(lambda event, arguments: see(event, arguments, folder, record, fault, at))
            status = work()
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    wait_status = os.waitpid(process, 0)[1]
    changes = os.fstat(record).st_size
    os.close(record)
    return os.waitstatus_to_exitcode(wait_status), changes


def see(event: str, arguments: tuple[Any, ...], folder: Path, record: int, fault: str, at: int) -> None:
    """Count a change below ``folder``, and strike if it is its turn.

    :raises OSError: the disk is full
    """
    if event not in CHANGES or (event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING)):
        return
    path = arguments[CHANGES[event]]
    if not isinstance(path, str | os.PathLike) or f"{folder}{os.sep}" not in os.path.abspath(path):
        return
    if "tensorboard" in os.fspath(path):  # written by a thread of its own
        return
    os.write(record, b".")
    number = os.fstat(record).st_size
    if fault in SIGNALS and number == at:
        os.killpg(0, SIGNALS[fault])
        time.sleep(0)  # Python runs the handler of SIGINT here
    if fault == "full disk" and number >= at and event in ("open", "os.mkdir"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def contents(folder: Path) -> dict[str, Any]:
    """Return every file below ``folder`` by name: its bytes, or the parameters of a checkpoint."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or "tensorboard" in name or name.endswith(TIMED):
            continue
        if path.suffix == ".pt":
            model = load_checkpoint(path)["model"]
            files[name] = {key: value.view(-1).view(torch.uint8).numpy().tobytes() for key, value in model.items()}
        else:
            files[name] = path.read_bytes()
    return files


class Case:
    """A command with its inputs, of which each run begins with the same ``results``.

    :param work: is called with the folder of inputs and that of results
    """

    def __init__(self, folder: Path, work: Callable[[Path, Path], int]) -> None:
        self.inputs, self.results, self.output = folder / "inputs", folder / "results", folder / "output"
        self.start = folder / "start"
        self.start.mkdir()
        self.work = work

    def run(self, fault: str = "", at: int = 0, resumes: bool = False) -> tuple[int, int]:
        if not resumes:
            shutil.rmtree(self.results, ignore_errors=True)
            shutil.copytree(self.start, self.results)
        return run_in_fork(lambda: self.work(self.inputs, self.results), self.results, self.output, fault, at)

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")


def average(inputs: Path, results: Path) -> int:
    return main(["checkpoint", "average", str(inputs), "--last", "3", "--output", str(results / "mean.pt")])


def convert(inputs: Path, results: Path) -> int:
    return main(["checkpoint", "convert", str(inputs / "released.pt"), "--output", str(results / "ours.pt")])


def translate(inputs: Path, results: Path) -> int:
    words = ["--path", inputs / "model.pt", "--input", inputs / "text.en", "--output", results / "text.de"]
    return main(["translate", "--max-len-b", "8", *map(str, words)])


def write_model(inputs: Path) -> None:
    """Write a model, its checkpoints of three epochs, text to translate, and a checkpoint of the released code."""
    make_model(inputs)
    state = load_checkpoint(inputs / "model.pt")
    for epoch in range(1, 4):
        state["model"] |= {name: value * epoch for name, value in state["model"].items() if value.is_floating_point()}
        save_checkpoint(state, inputs / f"checkpoint{epoch}.pt")
    (inputs / "text.en").write_text("".join(f"{source}\n" for source, _ in PAIRS[:3]), encoding="utf-8")
    options, parameters = released()
    torch.save({"args": options, "model": parameters}, inputs / "released.pt")


def recipe_case(folder: Path, action: str) -> Case:
    """Return the case of an action of a small recipe; its commands of fairseq run in its process."""
    for name in IMPORTED:  # once, and not in every fork
        import_module(name)
    (folder / "inputs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        runner = Runner("multi30k_en_de", folder / "inputs", patch)
    runner.change("train", max_update=2, log_samples=0)

    def work(inputs: Path, results: Path, action: str = action) -> int:
        patch = pytest.MonkeyPatch()  # undone by the end of the process
        start_programs_here(patch)
        publish(runner.files, patch)
        runner.output = results
        return runner(action)

    case = Case(folder, work)
    if action == "train":
        assert run_in_fork(lambda: work(case.inputs, case.start, "prepare"), case.start, case.output)[0] == 0
        # The absolute paths in its records are those of the results.
        case.results = folder / "results"
    return case


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Return a function from the name of a command to its case, whose uninterrupted run is in ``files``."""

    @cache
    def case(name: str) -> Case:
        folder = tmp_path_factory.mktemp(name)
        if name in ("prepare", "train"):
            made = recipe_case(folder, name)
        else:
            made = Case(folder, {"average": average, "convert": convert, "translate": translate}[name])
            made.inputs.mkdir()
            write_model(made.inputs)
        status, made.changes = made.run()
        assert status == 0, made.said
        made.files = contents(made.results)
        made.longest = max(path.stat().st_size for path in made.results.rglob("*") if path.is_file())
        return made

    return case


# The steps of "prepare" and "train" are jobs alike, and what "average" and "convert" save is a checkpoint alike.
CASES = {
    "average": ("kill", "file too long"),
    "convert": ("interrupt", "full disk"),
    "translate": ("kill", "full disk"),
    "prepare": ("kill", "full disk"),
    "train": ("kill", "interrupt", "file too long"),
}


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name in CASES for fault in CASES[name]])
def test_the_same_command_continues(case_of: Callable[[str], Case], name: str, fault: str) -> None:
    case = case_of(name)
    # A preparation is killed amid each of its steps.
    for quarter in (1, 2, 3) if (name, fault) == ("prepare", "kill") else (2,):
        at = case.longest // 2 if fault == "file too long" else max(1, case.changes * quarter // 4)
        status, _ = case.run(fault, at)
        assert status == {"kill": -signal.SIGKILL, "interrupt": 130}.get(fault, 2), case.said
        assert "Traceback" not in case.said
        if fault in ("full disk", "file too long"):
            assert f"{case.results}{os.sep}" in case.said.partition(" error: ")[2]
        assert case.run(resumes=True)[0] == 0, case.said
        assert contents(case.results) == case.files
