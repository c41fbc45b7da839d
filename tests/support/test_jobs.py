from pathlib import Path

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


def test_a_completed_job_is_skipped(tmp_path: Path) -> None:
    assert run(tmp_path) == ["a", "b"]
    assert run(tmp_path) == []


def test_whether_a_job_is_done(tmp_path: Path) -> None:
    result = tmp_path / "result"
    assert not Jobs(tmp_path).is_done("a", 1, result)
    Jobs(tmp_path).run("a", 1, result, result.touch)
    assert Jobs(tmp_path).is_done("a", 1, result)
    assert not Jobs(tmp_path).is_done("a", 2, result)
    result.unlink()
    assert not Jobs(tmp_path).is_done("a", 1, result)


def test_a_stopped_job_runs_again_and_those_before_it_are_not(tmp_path: Path) -> None:
    assert run(tmp_path, fail=True) == ["a", "stopped"]
    assert run(tmp_path) == ["b"]


def test_a_changed_request_redoes_it_and_all_after_it(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, second=3) == ["b"]
    assert run(tmp_path, first=9, second=3) == ["a", "b"]


def test_a_job_whose_result_is_gone_runs_again(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "result").unlink()
    assert run(tmp_path) == ["b"]


def test_going_back_is_a_change_too(tmp_path: Path) -> None:
    for second in (2, 3, 2):
        assert run(tmp_path, second=second)[-1] == "b"


def test_a_failure_after_a_success_forgets_the_success(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, second=5, fail=True) == ["stopped"]
    assert run(tmp_path) == ["b"]


def test_jobs_that_build_on_others(tmp_path: Path) -> None:
    below = Jobs(tmp_path)
    below.run("a", 1, tmp_path, lambda: None)
    above = Jobs(tmp_path, below.digest)
    assert above.digest_of("x") != Jobs(tmp_path).digest_of("x")
    with pytest.raises(ZeroDivisionError):
        above.run("c", 1, tmp_path, lambda: 1 / 0)
    assert not (tmp_path / "c.done").exists()
