"""Map a function over chunks of a long text in parallel, keeping the order."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from joblib import Parallel, delayed

from ode_transformer.support.console import ProgressMeter

CHUNKS_PER_WORKER = 8  # chunks in memory at a time

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_chunks(
    function: Callable[[list[Item]], list[Result]],
    items: Iterable[Item],
    workers: int,
    label: str,
    chunk_size: int = 2000,
    total: int | None = None,
) -> Iterator[Result]:
    """Yield the results of ``function`` for consecutive chunks of ``items`` and print progress.

    :param function: defined in a module, because it is sent to other processes
    :param workers: number of processes; 1 works in this process
    :param label: names the items in the lines of progress
    :param total: their number, if it is known
    """
    remaining, meter = iter(items), ProgressMeter(label, total)
    chunks = iter(lambda: list(islice(remaining, chunk_size)), [])
    with Parallel(n_jobs=workers) as pool:
        # A limited number of chunks at a time: the text may be larger than memory.
        while wave := list(islice(chunks, CHUNKS_PER_WORKER * workers)):
            results_of_chunks = pool(delayed(function)(chunk) for chunk in wave)
            for chunk, results in zip(wave, results_of_chunks, strict=True):
                yield from results
                meter.add(len(chunk))
