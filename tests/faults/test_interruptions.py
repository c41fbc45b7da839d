"""Work that is interrupted at any change of the file system goes on with the same command to the same bytes.

Here a few points of each kind; ``python tests/faults/strike_everywhere.py`` takes them all and counts the outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from interrupted_work import WORKS, Interruptible, points_of
from interruptions import KINDS, Fault

# (work, fault, points)
SAMPLE = [(name, kind, 3) for name in ("average", "convert", "translate", "prepare") for kind in KINDS]
LONG = [("train", kind, 2) for kind in ("kill", "interrupt", "too long")]


@pytest.fixture(scope="module")
def work_called(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Interruptible]:
    """Return a piece of work by name; each is made once."""
    folder = tmp_path_factory.mktemp("interrupted")
    return cache(lambda name: WORKS[name](folder / name))


@pytest.mark.parametrize(
    ("name", "kind", "most"), [*SAMPLE, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG)]
)
def test_the_same_command_goes_on(work_called: Callable[[str], Interruptible], name: str, kind: str, most: int) -> None:
    work = work_called(name)
    points = points_of(work, kind, most)
    if not points:
        pytest.skip("the work leaves no file that is large enough")
    for point in points:
        work.check(Fault(kind, point))


@pytest.mark.parametrize(
    "name", ["average", "convert", "translate", "prepare", pytest.param("train", marks=pytest.mark.slow)]
)
def test_two_processes_at_one_folder(work_called: Callable[[str], Interruptible], name: str) -> None:
    work_called(name).check_two_at_once()
