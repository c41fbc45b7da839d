"""``--user-dir`` finds the architectures wherever the package lies and the command is started."""

import shutil
from pathlib import Path

import pytest
from commands_for_tests import ENVIRONMENT, USER_DIR, Text, succeed, training

pytestmark = pytest.mark.slow


def options(text: Text, save_dir: Path, user_dir: object) -> tuple[object, ...]:
    return training(text, save_dir, "ode_transformer_rk4_tiny", 1, "--user-dir", user_dir)


def test_relative_to_where_the_command_is_started(text: Text, tmp_path: Path) -> None:
    succeed("train", *options(text, tmp_path / "run", USER_DIR.name), cwd=USER_DIR.parent)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()


def test_of_an_installed_package(text: Text, tmp_path: Path) -> None:
    installed = tmp_path / "site" / USER_DIR.name
    shutil.copytree(USER_DIR, installed)
    environment = ENVIRONMENT | {"PYTHONPATH": str(installed.parent)}  # as if it were in site-packages
    succeed("train", *options(text, tmp_path / "run", installed), cwd=tmp_path, env=environment)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()
