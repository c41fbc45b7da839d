import pytest
from forked_commands import run_quickly
from recipes_for_tests import NAMES, Runner

@pytest.mark.parametrize("name", NAMES)
def test_reproduce(name, tmp_path, monkeypatch):
    run_quickly(monkeypatch)
    runner = Runner(name, tmp_path, monkeypatch)
    assert runner("reproduce") == 0
