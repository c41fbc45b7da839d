"""Batches of concurrent requests, computed one after the other by a single thread.

A job is the work of one request, divided into items. A batch takes items of the jobs of one key, in turn: a long job
does not hold up the short ones that come after it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

Computation = Callable[[list[Any]], Sequence[Any]]


class QueueFullError(Exception):
    """More items wait than are allowed."""


@dataclass(eq=False)
class Job:
    """Work of one request.

    :param key: jobs of equal keys share batches; ``compute`` is the same for all of them
    :param compute: returns one result for each item of a batch
    :param items: those that no batch has taken yet
    :param outcome: receives the results, in the order of the items
    """

    key: Hashable
    compute: Computation
    items: deque[Any]
    size: int
    outcome: asyncio.Future[list[Any]]
    results: list[Any] = field(default_factory=list)


class BatchQueue:
    """Jobs that wait; used from one event loop."""

    def __init__(self, batch_size: int, max_items: int) -> None:
        self.batch_size, self.max_items = batch_size, max_items
        self._jobs: list[Job] = []
        self._has_jobs = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of items that no batch has taken yet."""
        return sum(len(job.items) for job in self._jobs)

    async def compute(self, key: Hashable, compute: Computation, items: Sequence[Any]) -> list[Any]:
        """Return the results of a job; if the caller is cancelled, no further item is computed.

        :raises QueueFullError: more items than ``max_items`` would wait
        """
        if not items:
            return []
        if self.waiting + len(items) > self.max_items:
            raise QueueFullError
        outcome = asyncio.get_running_loop().create_future()
        job = Job(key, compute, deque(items), len(items), outcome)
        self._jobs.append(job)
        self._has_jobs.set()
        try:
            return await outcome
        finally:
            if job in self._jobs:
                self._jobs.remove(job)

    async def run(self) -> None:
        """Compute batches until cancelled."""
        # One thread of our own: PyTorch keeps settings and graphs by thread.
        with ThreadPoolExecutor(1, "batches") as thread:
            while True:
                await self._has_jobs.wait()
                if batch := self._next_batch():
                    await self._compute(batch, thread)
                else:
                    self._has_jobs.clear()

    async def _compute(self, batch: list[tuple[Job, Any]], thread: ThreadPoolExecutor) -> None:
        items, loop = [item for _, item in batch], asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(thread, batch[0][0].compute, items)
            outcomes = list(zip(batch, results, strict=True))
        except Exception as error:  # fails these requests; the others go on
            for job in dict.fromkeys(job for job, _ in batch):
                if not job.outcome.done():
                    job.outcome.set_exception(error)
            return
        for (job, _), result in outcomes:
            job.results.append(result)
            if len(job.results) == job.size and not job.outcome.done():
                job.outcome.set_result(job.results)

    def _next_batch(self) -> list[tuple[Job, Any]]:
        """Take the next items: one of each job of the first job's key, again and again; none if no job waits."""
        jobs = deque(job for job in self._jobs if job.key == self._jobs[0].key)
        batch: list[tuple[Job, Any]] = []
        while jobs and len(batch) < self.batch_size:
            job = jobs.popleft()
            batch.append((job, job.items.popleft()))
            if job.items:
                jobs.append(job)
            else:
                self._jobs.remove(job)
        # The jobs that are left go behind all others, so that each key has its turn.
        self._jobs = [job for job in self._jobs if job not in jobs] + list(jobs)
        return batch
