"""Batches of jobs: their order, their bounds, and failures that stay with their requests."""

import threading
from concurrent.futures import CancelledError

import pytest

from ode_transformer.pages.batches import BatchWorker, Job, QueueFullError


def test_batches_take_items_in_turn_and_results_keep_their_order() -> None:
    worker, batches = BatchWorker(batch_size=4, max_items=100), []

    def work(items: list[str]) -> list[str]:
        batches.append("".join(items))
        return [item.upper() for item in items]

    jobs = [Job("a", work, "abcdefg"), Job("a", work, "1"), Job("b", work, "xy"), Job("a", work, "2")]
    futures = [worker.submit(job) for job in jobs]
    assert worker.waiting == 11
    worker.start()
    assert ["".join(future.result(10)) for future in futures] == ["ABCDEFG", "1", "XY", "2"]
    assert batches == ["a12b", "xy", "cdef", "g"]  # the short jobs do not wait for the long one
    assert worker.waiting == 0
    worker.stop()
    assert not worker.is_alive


def test_no_more_items_wait_than_allowed() -> None:
    worker = BatchWorker(batch_size=2, max_items=3)
    kept = worker.submit(Job("a", list, "ab"))
    with pytest.raises(QueueFullError):
        worker.submit(Job("a", list, "cd"))
    dropped = worker.submit(Job("a", list, "e"))
    dropped.cancel()
    worker.start()
    assert kept.result(10) == ["a", "b"]
    assert worker.submit(Job("a", list, "cde")).result(10) == ["c", "d", "e"]
    worker.stop()


@pytest.mark.parametrize("work", [lambda items: 1 / 0, lambda items: items[1:]])
def test_a_failure_stays_with_its_requests(work) -> None:
    worker = BatchWorker(batch_size=2, max_items=10)
    failing = [worker.submit(Job("a", work, items)) for items in ("abc", "d")]
    sound = worker.submit(Job("b", list, "ef"))
    worker.start()
    for future in failing:
        assert isinstance(future.exception(10), ZeroDivisionError | RuntimeError)
    assert sound.result(10) == ["e", "f"]
    assert worker.waiting == 0
    worker.stop()


def test_what_waits_at_the_end_is_cancelled() -> None:
    worker, begun, go_on = BatchWorker(batch_size=1, max_items=10), threading.Event(), threading.Event()

    def work(items: list[str]) -> list[str]:
        begun.set()
        go_on.wait(10)
        return items

    worker.start()
    first, second = (worker.submit(Job(name, work, "a")) for name in "ab")
    begun.wait(10)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    with pytest.raises(CancelledError):
        second.result(10)
    go_on.set()
    assert first.result(10) == ["a"]
    stopping.join()
