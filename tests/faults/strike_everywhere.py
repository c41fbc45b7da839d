"""Strikes every piece of work at every point by every kind of fault, and prints the outcomes as a table.

    python tests/faults/strike_everywhere.py [--faults KIND,...] [--points N] [WORK ...]

Exit status 1 if any outcome is not as promised. All of it takes hours on two cores; ``average`` alone half a minute.
Several processes can share a work: each with its own ``--faults``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from interrupted_work import WORKS, points_of
from interruptions import KINDS, Fault

from ode_transformer.support.tables import markdown_table


def main() -> int:
    """Strike the pieces of work that the command line names, or all; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", metavar="WORK", nargs="*", help=f"some of {', '.join(WORKS)} (default: all)")
    parser.add_argument("--faults", default=",".join(KINDS), help="kinds of faults (default: %(default)s)")
    parser.add_argument("--points", type=int, metavar="N", help="at most N of each kind, at equal distances")
    args = parser.parse_args()
    for names, choices in ((args.works, WORKS), (kinds := args.faults.split(","), KINDS)):
        if others := sorted(set(names) - set(choices)):
            parser.error(f"{', '.join(others)}: there are {', '.join(choices)}")
    rows, failures = [], 0
    for name in args.works or list(WORKS):
        with tempfile.TemporaryDirectory() as folder:
            work = WORKS[name](Path(folder) / name)
            for kind in kinds:
                points, passed = points_of(work, kind, args.points), 0
                for point in points:
                    try:
                        work.check(Fault(kind, point))
                        passed += 1
                    except AssertionError as error:
                        failures += 1
                        print(f"{name}: {error}", file=sys.stderr, flush=True)
                rows.append([name, kind, str(len(points)), str(passed)])
                print(f"{name}, {kind}: {passed} of {len(points)} points", file=sys.stderr, flush=True)
    print(markdown_table(["work", "fault", "points", "same files after the same command"], rows))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
