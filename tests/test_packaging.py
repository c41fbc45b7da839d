"""The wheel: what it contains, and what the core needs."""

import email
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CORE = ("numerics", "nn", "models", "checkpoints", "decoding")
EXTRAS = ("experiments", "plots", "serve", "export", "huggingface")

# Imports every module of the core while some modules cannot be imported.
IMPORT_CORE = """
import importlib, pkgutil, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked, rooms = (words.split(",") for words in sys.argv[1:])
sys.meta_path.insert(0, Blocker())
for room in rooms:
    package = importlib.import_module(f"ode_transformer.{room}")
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
importlib.import_module("ode_transformer.lab.metrics.registry")  # which the extras serve and plots need, too
from ode_transformer.cli import main
assert main(["train", "--help"]) == 2  # names the missing package
main(["--help"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy because setuptools writes into the sources."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("ode_transformer", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder / "wheels"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, folder], check=True)
    return zipfile.ZipFile(next((folder / "wheels").glob("*.whl")))


def closure(requirements: list[Requirement]) -> set[str]:
    """Return the names of all installed distributions that some requirements bring."""
    names, installed = set[str](), {canonicalize_name(one.metadata["Name"]) for one in metadata.distributions()}
    while requirements:
        requirement = requirements.pop()
        name = canonicalize_name(requirement.name)
        # fairseq asks for torchaudio, which scripts/environment.sh leaves out.
        if name in installed - names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(name)
            requirements += map(Requirement, metadata.requires(name) or [])
    return names


def test_the_core_imports_without_the_extras(wheel: zipfile.ZipFile) -> None:
    (file,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = email.message_from_bytes(wheel.read(file)).get_all("Requires-Dist", [])
    requirements = [Requirement(line) for line in lines]
    core = closure([one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})])
    optional = [one for one in requirements if one.marker and any(one.marker.evaluate({"extra": e}) for e in EXTRAS)]
    extras = {canonicalize_name(one.name) for one in optional}
    modules = metadata.packages_distributions()
    blocked = [name for name, owners in modules.items() if {canonicalize_name(o) for o in owners} & (extras - core)]
    assert {"pydantic", "sacremoses", "matplotlib", "uvicorn"} <= set(blocked)
    words = [sys.executable, "-c", IMPORT_CORE, ",".join(blocked), ",".join(CORE)]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert "usage: ode-transformer" in done.stdout, done.stderr
    missing = [line for line in done.stderr.splitlines() if "is not installed: pip install" in line]
    assert len(missing) == 1


def test_an_installed_package_has_the_recipes(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    code = (
        "import ode_transformer\n"
        "from ode_transformer.lab.recipes.recipe import read_recipe\n"
        "from ode_transformer.lab.recipes.options import find_recipe, recipe_names\n"
        "from ode_transformer.lab.studies import study_names\n"
        "recipes = [read_recipe(find_recipe(name)) for name in recipe_names()]\n"
        "print(ode_transformer.__file__, len(recipes), len(study_names()), sep='\\n')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, recipes, studies = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    files = [path.read_text() for path in (ROOT / "configs").glob("*.yaml")]
    assert int(recipes) == sum("tokens_per_update" in text for text in files)
    assert int(studies) == len(list((ROOT / "configs" / "studies").glob("*.yaml")))
    texts = {path.name for path in (ROOT / "configs").glob("*.txt")}
    assert texts == {path.name for path in (tmp_path / "ode_transformer" / "configs").glob("*.txt")}


@pytest.mark.slow
def test_a_clone_writes_its_pages_by_an_installed_package(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """The page that reads results of docs/, which no installation has."""
    wheel.extractall(tmp_path / "installed")
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    words = [sys.executable, "-m", "generator.schemes"]
    done = subprocess.run(words, cwd=docs, env=environment, capture_output=True, text=True)
    assert done.stdout == (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8"), done.stderr
