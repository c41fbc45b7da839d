"""Spreads work on a long text over processes, in its own order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from joblib import Parallel, delayed

from ode_transformer.support.progress import Pace

CHUNKS_AT_ONCE = 8  # for each worker

Item = TypeVar("Item")
Result = TypeVar("Result")


def by_chunks(
    function: Callable[[list[Item]], list[Result]],
    items: Iterable[Item],
    workers: int,
    what: str,
    size: int = 2000,
) -> Iterator[Result]:
    """What a function makes of lists of items, one list after the other, with progress.

    :param function: of a module, because it is sent to other processes
    :param workers: how many processes; 1 stays in this one
    :param what: is being done, for the progress
    :param size: items in a list
    """
    rest, pace, done = iter(items), Pace(what), 0
    chunks = iter(lambda: list(islice(rest, size)), [])
    with Parallel(n_jobs=workers) as pool:
        # A wave at a time: the text may be larger than memory, and its consumer slower than the workers.
        while wave := list(islice(chunks, CHUNKS_AT_ONCE * workers)):
            for count, results in pool(delayed(_counted)(function, chunk) for chunk in wave):
                yield from results
                done += count
                pace.tell(done)


def _counted(function: Callable[[list[Item]], list[Result]], chunk: list[Item]) -> tuple[int, list[Result]]:
    return len(chunk), function(chunk)
