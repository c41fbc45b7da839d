"""Time and memory of a training on the CPU with each allocator that ``ode-transformer`` may give it.

    python benchmarks/allocators.py --updates 300 -- fairseq-train …     # a command with --cpu, as --dry-run prints it

In each round every allocator trains from the beginning. The time is that of an update in the last third, because an
allocator slows down among the freed blocks that batches of many sizes have left; the memory is the most of the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from ode_transformer.analysis.training_log import read_log
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.commands import GNU_C_LIBRARY, keep_memory, last_line
from ode_transformer.support.errors import UserError
from ode_transformer.support.provenance import provenance
from ode_transformer.support.tables import markdown_table

PARTS = 3  # of a training; the last is measured


def measure(command: Sequence[str], updates: int, allocator: Mapping[str, str]) -> tuple[float, float]:
    """Train with an allocator; return the seconds of a late update and the peak of memory in MiB.

    :raises UserError: the training failed
    """
    with TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        words = [str(Path(sys.executable).parent / command[0]), *command[1:], "--no-save", "--disable-validation"]
        words += ["--save-dir", folder, "--tensorboard-logdir", folder]
        words += ["--max-update", str(updates), "--log-format", "json", "--log-interval", str(updates // PARTS)]
        with open(log, "wb") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=os.environ | dict(allocator))
            _, status, usage = os.wait4(process.pid, 0)  # subprocess does not tell the memory
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise UserError(f"{command[0]} failed: {last_line(log)}")
        last = [point for point in read_log(log) if point.split == "train"][PARTS - 1]
        assert last.tokens_per_update is not None
        assert last.tokens_per_second is not None
        return last.tokens_per_update / last.tokens_per_second, usage.ru_maxrss / 1024


def spread(values: Sequence[float], digits: int) -> str:
    """Return the median, with the least and the greatest value in brackets."""
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def main() -> None:
    """Measure, and print a table.

    :raises UserError: TCMalloc is not installed, or a training failed
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=5)
    parser.add_argument("--updates", type=positive_int, default=300, help="of each training (default: 300)")
    parser.add_argument("command", nargs="+", help="fairseq-train with its flags")
    args = parser.parse_args()
    if "LD_PRELOAD" not in (tcmalloc := keep_memory()):
        raise UserError("TCMalloc is not installed, or LD_PRELOAD is set (Debian, Ubuntu: libtcmalloc-minimal4)")
    allocators = {"GNU C library": {}, "that keeps freed memory": GNU_C_LIBRARY, "TCMalloc": tcmalloc}
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in allocators}
    for _ in range(args.rounds):
        for name, allocator in allocators.items():
            results[name].append(measure(args.command, args.updates, allocator))
            print(f"{name}: {results[name][-1][0]:.3f} s, {results[name][-1][1]:,.0f} MiB", file=sys.stderr, flush=True)
    first = [seconds for seconds, _ in results["GNU C library"]]
    rows = []
    for name, rounds in results.items():
        seconds, memory = zip(*rounds, strict=True)
        ratios = [here / there for here, there in zip(seconds, first, strict=True)]
        rows.append([name, spread(ratios, 2), spread(seconds, 3), spread(memory, 0)])
    print(markdown_table(["allocator", "time of an update, ratio", "seconds", "peak of memory, MiB"], rows))
    print(provenance(sys.argv, on_gpu=False))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"allocators.py: {error}")
