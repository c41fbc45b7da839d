"""Batches of concurrent requests, computed one after the other by a single thread.

A request brings items that share batches with those of other requests of its key. Each item has a turn, one later than
the item before it, and a request that comes begins with the present turn: it does not wait for a long one before it.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

Computation = Callable[[list[Any]], Sequence[Any]]


class QueueFullError(Exception):
    """More items wait than are allowed."""


@dataclass(eq=False)
class Item:
    """A part of a request.

    :param compute: returns one result for each item of a batch, the same function for all items of a key
    :param result: receives the result
    """

    turn: int
    key: Hashable
    compute: Computation
    content: Any
    result: asyncio.Future[Any]


class BatchQueue:
    """Items that wait; used from one event loop."""

    def __init__(self, batch_size: int, max_items: int) -> None:
        self.batch_size, self.max_items = batch_size, max_items
        self._items: list[Item] = []  # by turn
        self._turn = 0
        self._has_items = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of items that no batch has taken yet."""
        return len(self._items)

    async def compute(self, key: Hashable, compute: Computation, contents: Sequence[Any]) -> list[Any]:
        """Return the results of a request; if it fails or is cancelled, no further item of it is computed.

        :raises QueueFullError: more items than ``max_items`` would wait
        """
        if self.waiting + len(contents) > self.max_items:
            raise QueueFullError
        new_result = asyncio.get_running_loop().create_future
        items = [Item(turn, key, compute, content, new_result()) for turn, content in enumerate(contents, self._turn)]
        self._items = sorted([*self._items, *items], key=lambda item: item.turn)
        self._has_items.set()
        try:
            return await asyncio.gather(*(item.result for item in items))
        finally:
            self._remove(items)

    async def run(self) -> None:
        """Compute batches until cancelled."""
        # One thread of our own: PyTorch keeps settings and graphs by thread.
        with ThreadPoolExecutor(1, "batches") as thread:
            while True:
                await self._has_items.wait()
                if self._items:
                    await self._compute_batch(thread)
                else:
                    self._has_items.clear()

    async def _compute_batch(self, thread: ThreadPoolExecutor) -> None:
        first = self._items[0]
        batch = [item for item in self._items if item.key == first.key][: self.batch_size]
        self._remove(batch)
        self._turn = max(self._turn, batch[-1].turn) + 1  # always later, so that each key has its turn
        contents = [item.content for item in batch]
        try:
            results = await asyncio.get_running_loop().run_in_executor(thread, first.compute, contents)
            outcomes = list(zip(batch, results, strict=True))
        except Exception as error:  # fails these requests; the others go on
            outcomes = [(item, error) for item in batch]
        for item, outcome in outcomes:
            if not item.result.done():
                settle = item.result.set_exception if isinstance(outcome, Exception) else item.result.set_result
                settle(outcome)

    def _remove(self, items: Sequence[Item]) -> None:
        removed = set(items)
        self._items = [item for item in self._items if item not in removed]
