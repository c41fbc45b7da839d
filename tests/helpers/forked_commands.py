"""fairseq's commands without the seconds that imports take: each is a fork of a process that has imported fairseq.

This module imports nothing of the package, because ``--user-dir`` has to, except for commands of ours.
"""

import contextlib
import ctypes
import gc
import json
import logging
import multiprocessing
import os
import socket
import socketserver
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
import torch

IMPORTED = [
    *(f"fairseq_cli.{name}" for name in ("preprocess", "train", "hydra_train", "validate")),
    *(f"fairseq_cli.{name}" for name in ("generate", "interactive", "eval_lm")),
    *("torch._dynamo", "torch.utils.tensorboard"),  # of every training: its optimizer, its curves
    *("sacrebleu", "sacremoses", "matplotlib.pyplot"),  # of scores and plots
]
SCRIPTS = {entry.name: entry for entry in metadata.entry_points(group="console_scripts")}


class SharedServer(forkserver.ForkServer):
    """The server of forks of all workers of pytest: the first that needs it starts it, at an address that all know."""

    # Of this moment, before a test changes them. Python 3.11 does not tell the server sys.path.
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}

    def ensure_running(self) -> None:
        resource_tracker.ensure_running()
        if self._forkserver_address is None:
            end_of_tests = os.environ["END_OF_TESTS"]
            self._forkserver_address = f"\0{end_of_tests}"  # no file, and only one process can bind it
            self._forkserver_alive_fd = os.open(end_of_tests, os.O_WRONLY)
            with socket.socket(socket.AF_UNIX) as listener:
                try:
                    listener.bind(self._forkserver_address)
                except OSError:
                    return  # another worker's
                listener.listen()
                files = listener.fileno(), os.open(end_of_tests, os.O_RDONLY)
                modules = ["fairseq_for_forks", "forked_commands", *IMPORTED]
                code = f"from multiprocessing.forkserver import main; main(*{files}, {modules})"
                self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=files, env=self.variables)


forkserver.connect_to_new_process = SharedServer().connect_to_new_process
FORKS = multiprocessing.get_context("forkserver")  # starts processes that have imported fairseq


def run_forked(
    words: list[str], stdin: str, merge: bool, timeout: float, cwd: Path | str = "."
) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork and return what it wrote.

    :param merge: write standard error to standard output
    :param timeout: seconds after which the command is killed
    :raises subprocess.TimeoutExpired: if it was
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        for path, content in zip(paths, (stdin, "", ""), strict=True):
            path.write_text(content, encoding="utf-8")
        streams = [str(path) for path in (paths[1], paths[1] if merge else paths[2], paths[0])]
        process = FORKS.Process(target=carry_out, args=(words, *streams, str(cwd)))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in paths[1:])
        return subprocess.CompletedProcess(words, process.exitcode or 0, out, err)


# The client ends as soon as the fork has: what asks a program to end, as torchrun does, asks the fork.
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall(json.dumps([os.getpid(), os.getcwd(), dict(os.environ), *sys.argv]).encode() + bytes([10]))
    answers = server.makefile()
    process = int(answers.readline())
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
    sys.exit(int(answers.readline()))
"""


class CommandHandler(socketserver.StreamRequestHandler):
    """Carries out a command for a client, with what the client has; answers its number and its exit status."""

    def handle(self) -> None:
        process = FORKS.Process(target=carry_out_for, args=json.loads(self.rfile.readline()))
        process.start()
        self.wfile.write(f"{process.pid}\n".encode())
        wait([process.sentinel, self.connection])
        process.terminate()  # if the client was killed
        process.join()
        self.wfile.write(f"{process.exitcode}\n".encode())


@contextlib.contextmanager
def forking_programs(folder: Path) -> Iterator[str]:
    """Write programs, for a shell, that have our and fairseq's commands run in forks; yield a PATH that finds them."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as short:  # a socket's address has at most 107 characters
        address = f"{short}/commands"
        fairseq = [f"fairseq-{name}" for name in ("preprocess", "train", "generate")]
        for name in (*fairseq, "ode-transformer", "torchrun"):
            (folder / name).write_text(CLIENT.format(python=sys.executable, address=address))
            (folder / name).chmod(0o755)
        with socketserver.ThreadingUnixStreamServer(address, CommandHandler) as server:
            threading.Thread(target=server.serve_forever).start()
            yield f"{folder}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
            server.shutdown()


class Forked:
    """Popen for fairseq's commands, as ``commands.run`` uses it, by a process that has imported everything already."""

    context: Any = FORKS

    def __init__(self, words: list[str], stdout: BinaryIO, env: Mapping[str, str], **others: Any) -> None:
        self.words = words
        self.arguments = {"words": words, "output": stdout.name, "environment": dict(env)}
        self.returncode: int | None = None

    def __enter__(self) -> "Forked":
        self.process = self.context.Process(target=carry_out, kwargs=self.arguments)
        self.process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.wait()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit status of the command.

        :raises subprocess.TimeoutExpired: it has not ended within so many seconds
        """
        self.process.join(timeout)
        self.returncode = self.process.exitcode
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.words, timeout or 0)
        return self.returncode


def carry_out_for(client: int, folder: str, environment: Mapping[str, str], *words: str) -> None:
    """Run a command with what a process has: its streams, folder, variables, and network, which only root can enter."""
    ctypes.CDLL(None).setns(os.open(f"/proc/{client}/ns/net", os.O_RDONLY), 0)
    out, err, stdin = (f"/proc/{client}/fd/{stream}" for stream in (1, 2, 0))
    carry_out(list(words), out, err, stdin, folder, environment)


def carry_out(
    words: list[str],
    output: str,
    errors: str | None = None,
    stdin: str = os.devnull,
    folder: str = ".",
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Run a command of this Python environment, its streams being files; its own commands are forks as well.

    :param errors: file of standard error, by default that of standard output
    """
    prepare()
    os.environ.pop("PYTHONPATH", None)
    os.environ.update(environment or {})
    gc.freeze()  # a collection would write to all that was imported, and so copy it
    os.chdir(folder)
    logging.disable(logging.NOTSET)  # a fork inherits what its parent has switched off,
    logging.root.handlers.clear()  # and handlers that write elsewhere
    logging.basicConfig(format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", level="INFO", stream=sys.stdout)
    for path, stream in ((output, sys.stdout), (errors or output, sys.stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream.fileno())
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115  the process reads it to its end
    torch.set_num_threads(1)  # sums are always formed in one order
    multiprocessing.set_start_method("fork", force=True)  # Linux's own, for the processes that load data
    sys.argv = words
    if Path(words[0]).name == "ode-transformer":
        start_commands_in_forks(words[0])
    sys.exit(SCRIPTS[Path(words[0]).name].load()())


class ForkedHere(Forked):
    """A command of fairseq as a fork of the process that starts it, which has imported everything."""

    context = multiprocessing.get_context("fork")

    def __init__(self, words: list[str], stdout: BinaryIO, preexec_fn: Callable[[], None], **others: Any) -> None:
        super().__init__(words, stdout, **others)
        self.arguments["output"] = f"/proc/self/fd/{stdout.fileno()}"  # inherited, and opened only once
        self.arguments["prepare"] = preexec_fn
        import ode_transformer.models  # noqa: F401  (before the fork: fairseq finds the architectures in every process)


def start_commands_in_forks(program: str = sys.executable) -> None:
    """Let the package start fairseq's commands as forks of this process, to its end.

    :param program: beside which it finds the commands
    """
    from ode_transformer.support import commands

    commands.subprocess = SimpleNamespace(Popen=ForkedHere, STDOUT=None)
    commands.sys = SimpleNamespace(executable=program)


def run_quickly(monkeypatch: pytest.MonkeyPatch, program: str = sys.executable) -> None:
    """Lets the runner start its commands, those beside ``program``, without the seconds that imports take."""
    popen = SimpleNamespace(Popen=Forked, STDOUT=None)
    monkeypatch.setattr("ode_transformer.support.commands.subprocess", popen)
    monkeypatch.setattr("ode_transformer.support.commands.sys", SimpleNamespace(executable=program))
