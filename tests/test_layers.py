"""The rooms of the package import each other only downwards."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ode_transformer

PACKAGE = Path(ode_transformer.__file__).parent
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.glob("*/**/*.py")}

# The rooms from the lowest to the highest, each with the rooms that it may import. The plugin imports no room of lab.
ARROWS = {
    "support": "",
    "numerics": "",
    "nn": "numerics",
    "checkpoints": "support nn",
    "speed": "support nn",
    "models": "support numerics nn speed checkpoints",
    "decoding": "support nn speed checkpoints models",
    "export": "support numerics nn checkpoints models decoding",
    "lab.metrics": "support",
    "lab.analysis": "support numerics nn models decoding lab.metrics",
    "lab.pages": "support numerics nn models decoding lab.metrics lab.analysis",
    "lab.corpora": "support lab.metrics",
    "lab.recipes": "support nn models checkpoints decoding lab.corpora lab.metrics lab.analysis",
    "lab.studies": "support models decoding lab.metrics lab.analysis lab.recipes lab.pages",
    "lab.glue": "support checkpoints models lab.corpora lab.recipes",
    "cli": "support nn checkpoints models decoding export "
    "lab.recipes lab.studies lab.glue lab.metrics lab.analysis lab.pages",
}


def room_of(module: str) -> str:
    """Return the room of a dotted name within the package, such as lab.metrics; empty for a file of the package."""
    first, second, *_ = f"{module}..".split(".")
    room = f"{first}.{second}" if first == "lab" else first
    return room if room in ARROWS else ""


def imported_rooms(path: Path) -> Iterator[str]:
    """Yield the rooms that a file imports, also within functions and by the table of commands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # a module in a table counts as an import
            names = [f"{ode_transformer.__name__}.{node.value}"] if node.value in MODULES else []
        for package, _, module in (name.partition(".") for name in names):
            if package == ode_transformer.__name__ and room_of(module):
                yield room_of(module)


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    paths = sorted((PACKAGE / room.replace(".", "/")).rglob("*.py"))
    rooms = {other: path.relative_to(PACKAGE) for path in paths for other in imported_rooms(path)}
    assert {other: path for other, path in rooms.items() if other not in {room, *ARROWS[room].split()}} == {}


def test_every_room_has_its_arrows() -> None:
    rooms = {".".join(path.parent.relative_to(PACKAGE).parts) for path in PACKAGE.glob("*/**/__init__.py")}
    assert {room for room in rooms if room != "lab" and not room_of(room)} == set()
