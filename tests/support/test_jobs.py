from pathlib import Path

import pytest

from ode_transformer.support.jobs import Steps


def run(directory: Path, first: int = 1, second: int = 2, fail: bool = False) -> list[str]:
    """Two steps; returns the names of those that were really done."""
    done: list[str] = []

    def make(name: str) -> None:
        if fail and name == "b":
            raise RuntimeError("stopped")
        done.append(name)
        (directory / "result").touch()

    steps = Steps(directory)
    try:
        steps("a", first, directory, lambda: make("a"))
        steps("b", {"size": second}, directory / "result", lambda: make("b"))
    except RuntimeError:
        done.append("stopped")
    return done


def test_a_completed_step_is_left_out(tmp_path: Path) -> None:
    assert run(tmp_path) == ["a", "b"]
    assert run(tmp_path) == []


def test_it_can_be_asked_whether_a_step_is_done(tmp_path: Path) -> None:
    result = tmp_path / "result"
    assert not Steps(tmp_path).has_done("a", 1, result)
    Steps(tmp_path)("a", 1, result, result.touch)
    assert Steps(tmp_path).has_done("a", 1, result)
    assert not Steps(tmp_path).has_done("a", 2, result)
    result.unlink()
    assert not Steps(tmp_path).has_done("a", 1, result)


def test_a_stopped_step_is_done_again_and_those_before_it_are_not(tmp_path: Path) -> None:
    assert run(tmp_path, fail=True) == ["a", "stopped"]
    assert run(tmp_path) == ["b"]


def test_a_changed_request_redoes_it_and_all_after_it(tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, second=3) == ["b"]
    assert run(tmp_path, first=9, second=3) == ["a", "b"]


def test_a_step_whose_result_is_gone_is_done_again(tmp_path: Path) -> None:
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


def test_steps_that_build_on_others(tmp_path: Path) -> None:
    below = Steps(tmp_path)
    below("a", 1, tmp_path, lambda: None)
    above = Steps(tmp_path, below.digest)
    assert above.digest_of("x") != Steps(tmp_path).digest_of("x")
    with pytest.raises(ZeroDivisionError):
        above("c", 1, tmp_path, lambda: 1 / 0)
    assert not (tmp_path / "c.done").exists()
