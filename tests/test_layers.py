"""The rooms of the package import each other only downwards, and the lower ones stand without fairseq."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ode_transformer

PACKAGE = Path(ode_transformer.__file__).parent

# The rooms from the lowest to the highest, each with the rooms that it may import.
ARROWS = {
    "support": "",
    "numerics": "",
    "nn": "numerics",
    "checkpoints": "support",
    "models": "support numerics nn checkpoints",
    "decoding": "support nn checkpoints models",
    "export": "support numerics nn models decoding",
    "metrics": "support",
    "analysis": "support numerics nn decoding metrics",
    "pages": "support numerics nn models decoding metrics analysis",
    "corpora": "support metrics",
    "recipes": "support nn models checkpoints corpora metrics analysis",
    "studies": "support models decoding metrics analysis recipes",
    "glue": "support checkpoints models corpora recipes",
    "cli": "support recipes studies glue",  # and whatever the tables of commands name
}


def imported_rooms(path: Path) -> Iterator[str]:
    """Yield the rooms that a file imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for package, room, *_ in (f"{name}..".split(".") for name in names):
            if package == ode_transformer.__name__ and room and (PACKAGE / room).is_dir():
                yield room


@pytest.mark.parametrize("room", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    others = {
        other: path.relative_to(PACKAGE)
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for other in imported_rooms(path)
        if other not in {room, *ARROWS[room].split()}
    }
    assert not others


def test_the_arrows_have_no_circle() -> None:
    order = list(graphlib.TopologicalSorter({room: others.split() for room, others in ARROWS.items()}).static_order())
    assert sorted(order) == sorted(ARROWS)


@pytest.mark.parametrize("module", ["ode_transformer", "ode_transformer.numerics", "ode_transformer.nn"])
def test_fairseq_is_not_loaded(module: str) -> None:
    code = f"import {module}, sys; print([m for m in sys.modules if m.split('.')[0] == 'fairseq'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Without packages, pytest takes two files of one name for one module."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
