"""The commit behind a measurement is the package's own."""

import subprocess
from pathlib import Path

import pytest

from ode_transformer.support import provenance


def commit(package: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(provenance, "PACKAGE", package)
    return provenance.provenance(["a"], on_gpu=False)["commit"]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_package_installed_in_another_repository_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    assert commit(package, monkeypatch) == "unknown"  # no repository
    git(tmp_path, "init", "-q")
    (tmp_path / "a").touch()
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    assert commit(package, monkeypatch) == "unknown"  # not in it
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "b")
    assert git(tmp_path, "rev-parse", "HEAD").startswith(commit(package, monkeypatch))
    (package / "__init__.py").write_text("changed")
    assert commit(package, monkeypatch).endswith("-dirty")
