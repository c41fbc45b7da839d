"""Batches of jobs: their order, their bounds, and failures that stay with their requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from ode_transformer.lab.pages.batches import BatchQueue


@asynccontextmanager
async def running(queue: BatchQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    yield
    task.cancel()


async def submit(queue: BatchQueue, work, *jobs: tuple[str, Sequence[str]]) -> list[asyncio.Task]:
    """Submit jobs, each with its key, and let all of them wait."""
    tasks = [asyncio.create_task(queue.compute(key, work, items)) for key, items in jobs]
    await asyncio.sleep(0)
    return tasks


def test_batches_take_items_in_turn_and_results_keep_their_order() -> None:
    batches = []

    def work(items: list[str]) -> list[str]:
        batches.append("".join(items))
        return [item.upper() for item in items]

    async def main() -> None:
        queue = BatchQueue(batch_size=4, max_items=100)
        tasks = await submit(queue, work, ("a", "abcdefg"), ("a", "1"), ("b", "xy"), ("a", "2"))
        assert queue.waiting == 11
        async with running(queue):
            assert ["".join(await task) for task in tasks] == ["ABCDEFG", "1", "XY", "2"]
        assert queue.waiting == 0

    asyncio.run(main())
    assert batches == ["a12b", "xy", "cdef", "g"]  # the short jobs do not wait for the long one


@pytest.mark.parametrize("work", [lambda items: 1 / 0, lambda items: items[1:]])
def test_a_failure_stays_with_its_requests(work) -> None:
    async def main() -> None:
        queue = BatchQueue(batch_size=2, max_items=10)
        failing = await submit(queue, work, ("a", "abc"), ("a", "d"))
        (sound,) = await submit(queue, list, ("b", "ef"))
        async with running(queue):
            for task in failing:
                with pytest.raises((ZeroDivisionError, ValueError)):
                    await task
            assert await sound == ["e", "f"]
        assert queue.waiting == 0

    asyncio.run(main())
