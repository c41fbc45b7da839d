"""Strikes every piece of work at every point by every kind of fault, and prints the outcomes as a table.

    python tests/faults/strike_everywhere.py [WORK ...]

Exit status 1 if any outcome is not as promised. All of it takes hours on two cores; ``average`` alone half a minute.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from interrupted_work import WORKS, points_of
from interruptions import KINDS, Fault

from ode_transformer.support.tables import markdown_table


def main(names: list[str]) -> int:
    """Strike the pieces of work called ``names``, or all; return the exit status."""
    rows, failures = [], []
    for name in names or list(WORKS):
        with tempfile.TemporaryDirectory() as folder:
            work = WORKS[name](Path(folder) / name)
            for kind in KINDS:
                points, passed = points_of(work, kind), 0
                for point in points:
                    try:
                        work.check(Fault(kind, point))
                        passed += 1
                    except AssertionError as error:
                        failures.append(f"{name}: {error}")
                rows.append([name, kind, str(len(points)), str(passed)])
                print(f"{name}, {kind}: {passed} of {len(points)} points", file=sys.stderr, flush=True)
    print(markdown_table(["work", "fault", "points", "same files after the same command"], rows))
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
