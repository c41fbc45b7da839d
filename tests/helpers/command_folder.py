"""This environment's commands for tests of shell lines: each runs in a fork, without the seconds of imports."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from commands_for_tests import COMMANDS
from forked_commands import carry_out, forking_context

# Hands its words, its folder and the paths of its streams to the test, and ends as the fork does.
PROGRAM = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as test:
    test.connect({address!r})
    streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2, 0)]
    test.sendall(json.dumps([sys.argv, os.getcwd(), streams]).encode() + b"\\n")
    sys.exit(int(test.makefile().readline()))
"""


def answer(connection: socket.socket) -> None:
    """Run the command that a program of the folder asks for, and send back its exit status."""
    with connection, connection.makefile("rw") as file:
        words, folder, streams = json.loads(file.readline())
        process = forking_context().Process(target=carry_out, args=(words, *streams, folder))
        process.start()
        process.join()
        file.write(f"{process.exitcode}\n")


@contextlib.contextmanager
def command_folder(folder: Path, names: list[str]) -> Iterator[Path]:
    """Write programs of these names into a new folder; they work until the context ends."""
    folder.mkdir()
    address = str(folder / "socket")
    for name in names:
        assert (COMMANDS / name).exists()
        (folder / name).write_text(PROGRAM.format(python=sys.executable, address=address))
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):  # closed
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield folder
        server.shutdown(socket.SHUT_RDWR)
