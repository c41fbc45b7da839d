from pathlib import Path
from typing import Any

import pytest

from ode_transformer.support.jobs import Jobs


def run(directory: Path, first: int = 1, second: int = 2, fail: bool = False) -> list[str]:
    """Run two jobs; return the names of those that did some work."""
    done: list[str] = []

    def make(name: str) -> None:
        if fail and name == "b":
            raise RuntimeError("stopped")
        done.append(name)
        (directory / "result").touch()

    jobs = Jobs(directory)
    try:
        jobs.run("a", first, directory, lambda: make("a"))
        jobs.run("b", {"size": second}, directory / "result", lambda: make("b"))
    except RuntimeError:
        done.append("stopped")
    return done


RUNS: dict[str, list[tuple[dict[str, Any], list[str]]]] = {  # runs in one folder, and the jobs that work in each
    "a completed job is skipped": [({}, ["a", "b"]), ({}, [])],
    "a stopped job runs again, those before it do not": [({"fail": True}, ["a", "stopped"]), ({}, ["b"])],
    "a changed request redoes it": [({}, ["a", "b"]), ({"second": 3}, ["b"])],
    "a changed request redoes all after it": [({}, ["a", "b"]), ({"first": 9}, ["a", "b"])],
    "going back is a change, too": [({}, ["a", "b"]), ({"second": 3}, ["b"]), ({}, ["b"])],
    "a failure forgets a success": [({}, ["a", "b"]), ({"second": 5, "fail": True}, ["stopped"]), ({}, ["b"])],
}


def test_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    assert run(tmp_path) == ["a", "b"]
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-10])
    assert run(tmp_path) == ["b"]
    assert run(tmp_path) == []


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_which_jobs_run(tmp_path: Path, runs: list[tuple[dict[str, Any], list[str]]]) -> None:
    assert [run(tmp_path, **requests) for requests, _ in runs] == [names for _, names in runs]
