"""Plots are written in the format of their name, and a name that cannot be written is found before the work."""

from pathlib import Path

import pytest

from ode_transformer.cli.command import main
from ode_transformer.lab.analysis.plots import check_outputs, new_figure, save_figure


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")])
def test_the_end_of_the_name_decides_on_the_format(tmp_path: Path, name: str, start: bytes) -> None:
    check_outputs(tmp_path / name)
    save_figure(new_figure(1, 1), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.jpgx", "a"])
def test_other_formats_are_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", "splitting-error", "--output", str(tmp_path / name)]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert f"--output {tmp_path / name}: a plot is a file with the end .png, .pdf, .svg" in error
