"""Gives mutated inputs to every parser, and prints what became of them as a table.

    python tests/faults/fuzz.py [--inputs N] [--seed S] [--only NAME ...]

Each parser gets an equal share. A parser has to accept an input or to refuse it in one line, within 10 seconds. An
input that ends otherwise is written to tests/faults/cases/, where the tests try it again; exit status 1 if one was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from mutations import mutate
from targets import TARGETS
from test_targets import CASES, error_of, is_one_line

from ode_transformer.support.tables import markdown_table

LIMIT = 10  # seconds for one input


class TooSlowError(BaseException):
    """An input took longer than the limit; no parser catches it."""


def on_alarm(*_: object) -> None:
    """Interrupt the parser.

    :raises TooSlowError: always
    """
    raise TooSlowError


def outcome_of(name: str, data: bytes) -> str:
    """Return ``accepted``, ``refused``, or what went wrong with an input."""
    signal.alarm(LIMIT)
    try:
        message = error_of(TARGETS[name].parse, data)
    except TooSlowError:
        return "too slow"
    except Exception as error:
        return f"traceback ({type(error).__name__})"
    finally:
        signal.alarm(0)
    if message is None:
        return "accepted"
    return "refused" if is_one_line(message) else "message of several lines"


def fuzz(name: str, inputs: int, seed: int) -> list[str]:
    """Try a parser with this number of inputs and return a row of the table."""
    generator = random.Random(f"{name} {seed}")
    outcomes: Counter[str] = Counter()
    slowest, before = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(inputs):
        data = mutate(generator, TARGETS[name].seeds)
        start = time.monotonic()
        outcome = outcome_of(name, data)
        slowest = max(slowest, time.monotonic() - start)
        outcomes[outcome] += 1
        if outcome not in ("accepted", "refused"):
            CASES.mkdir(exist_ok=True)
            (CASES / f"{name.replace(' ', '_')}-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)
            print(f"{name}: {outcome}", file=sys.stderr, flush=True)
    wrong = sum(outcomes.values()) - outcomes["accepted"] - outcomes["refused"]
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024  # from KiB
    counts = [inputs, outcomes["accepted"], outcomes["refused"], wrong]
    return [name, *(f"{count:,}" for count in counts), f"{slowest:.2f}", str(growth)]


def main() -> int:
    """Read the command line, try all parsers and return the exit status."""
    parser = argparse.ArgumentParser(description="Give mutated inputs to every parser.")
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="NAME")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, on_alarm)
    rows = []
    for name in args.only:
        rows.append(fuzz(name, -(-args.inputs // len(args.only)), args.seed))
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    heads = ["parser", "inputs", "accepted", "refused in one line", "otherwise", "slowest [s]", "memory growth [MB]"]
    print(markdown_table(heads, rows))
    return int(any(row[4] != "0" for row in rows))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the interpreter's own end can wait for ever for a lock of the test server's thread
