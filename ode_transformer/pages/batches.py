"""Batches of concurrent requests, computed by a single thread.

A job is the work of one request, divided into items. A batch takes items of the jobs of one key, in turn: a long job
does not hold up the short ones that come after it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
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
    :param items: one or more
    :param future: receives the results, in the order of the items; once cancelled, no further item is computed
    """

    key: Hashable
    compute: Computation
    items: Sequence[Any]
    future: Future[list[Any]] = field(default_factory=Future)
    next_item: int = 0
    results: list[Any] = field(default_factory=list)

    @property
    def is_divided(self) -> bool:
        """True if a batch has taken the last item."""
        return self.next_item == len(self.items)


class BatchWorker:
    """A thread that computes jobs.

    :param batch_size: items of a batch at most
    :param max_items: items that wait at most
    """

    def __init__(self, batch_size: int, max_items: int) -> None:
        self.batch_size, self.max_items = batch_size, max_items
        self._jobs: deque[Job] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of items that no batch has taken yet."""
        with self._changed:
            self._remove_cancelled()
            return self._waiting

    @property
    def is_alive(self) -> bool:
        """True while the thread computes what is submitted."""
        return self._thread.is_alive() and not self._ends

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> Future[list[Any]]:
        """Append a job to those that wait.

        :raises QueueFullError: more items than ``max_items`` would wait
        """
        with self._changed:
            self._remove_cancelled()
            if self._waiting + len(job.items) > self.max_items:
                raise QueueFullError
            self._waiting += len(job.items)
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def stop(self, timeout: float | None = None) -> None:
        """End the thread after its batch; jobs that wait are cancelled."""
        with self._changed:
            self._ends = True
            jobs, self._waiting = list(self._jobs), 0
            self._jobs.clear()
            self._changed.notify()
        for job in jobs:
            job.future.cancel()
        self._thread.join(timeout)

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                results = batch[0][0].compute([item for _, item in batch])
                if len(results) != len(batch):
                    raise RuntimeError(f"{len(results)} results of {len(batch)} items")
            except Exception as error:  # the other requests go on
                failed = list(dict.fromkeys(job for job, _ in batch))
                self._fail(failed, error)
                continue
            for (job, _), result in zip(batch, results, strict=True):
                job.results.append(result)
                if len(job.results) == len(job.items) and not job.future.cancelled():
                    _settle(job.future, result=job.results)

    def _next_batch(self) -> list[tuple[Job, Any]]:
        """Wait for jobs and return the next items; none once the thread has to end."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._ends or self._jobs)
                if self._ends:
                    return []
                self._remove_cancelled()
                if self._jobs:
                    break
            batch: list[tuple[Job, Any]] = []
            jobs = deque(job for job in self._jobs if job.key == self._jobs[0].key)
            while jobs and len(batch) < self.batch_size:
                job = jobs.popleft()
                batch.append((job, job.items[job.next_item]))
                job.next_item += 1
                self._waiting -= 1
                if job.is_divided:
                    self._remove(job)
                else:
                    jobs.append(job)
            for job in jobs:  # behind all others, so that each key has its turn
                self._jobs.remove(job)
                self._jobs.append(job)
            return batch

    def _remove_cancelled(self) -> None:
        for job in [job for job in self._jobs if job.future.cancelled()]:
            self._remove(job)

    def _remove(self, job: Job) -> None:
        self._jobs.remove(job)
        self._waiting -= len(job.items) - job.next_item

    def _fail(self, jobs: Sequence[Job], error: Exception) -> None:
        with self._changed:
            for job in jobs:
                if job in self._jobs:
                    self._remove(job)
        for job in jobs:
            _settle(job.future, error=error)


def _settle(future: Future[list[Any]], result: list[Any] | None = None, error: Exception | None = None) -> None:
    """Set the outcome of a future unless it has been cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert result is not None
        future.set_result(result)
