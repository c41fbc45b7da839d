"""A search in several processes on a CPU.

A step of decoding is too small for several threads of one process. The processes are forks, which share the parameters
and start at once; each takes the next batch as soon as it is free, long sentences first.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch
from torch import Tensor

from ode_transformer.support.commands import end_with_parent
from ode_transformer.support.errors import UserError

_shared: dict[str, Any] = {}  # what a fork inherits: the hub and the options of its search


def search_in_processes(
    hub: Any,
    sources: Sequence[Tensor],
    processes: int,
    chunk_size: int,
    progress: Callable[[int], object] = int,
    **search: Any,
) -> Iterator[Tensor]:
    """Yield the token numbers of the best hypothesis for each source, in the order of the sources.

    :param hub: a :class:`ode_transformer.decoding.translator.Translator`, or fairseq's counterpart
    :param chunk_size: number of sources that are sorted by length together; none of them waits for a later one
    :param progress: called with the number of sources of each batch that is done
    :param search: options of its ``generate``
    :raises UserError: a process has ended without a result
    """
    size, numbers = hub.batch_size, range(len(sources))
    batches = []
    for first in numbers[::chunk_size]:
        order = sorted(numbers[first : first + chunk_size], key=lambda number: -len(sources[number]))
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    best: dict[int, Tensor] = {}
    next_number = 0
    _shared.update(hub=hub, search=search)
    # All processes of a pool start at once, also those without a batch.
    count = max(1, min(processes, len(batches)))
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _prepare_process)
    try:
        results = pool.map(_search, [[sources[number].tolist() for number in batch] for batch in batches])
        for batch, hypotheses in zip(batches, results, strict=True):
            for number, tokens in zip(batch, hypotheses, strict=True):
                best[number] = sources[number].new_tensor(tokens)
            progress(len(batch))
            while next_number in best:
                yield best.pop(next_number)
                next_number += 1
    except BrokenProcessPool as error:
        raise UserError(
            f"one of {processes} processes that translate was killed, perhaps for want of memory (--processes 1)"
        ) from error
    finally:
        _shared.clear()
        pool.shutdown(cancel_futures=True)


def _prepare_process() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C ends it without a traceback; a parent may ignore both
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    torch.set_num_threads(1)


def _search(sources: list[list[int]]) -> list[list[int]]:
    hypotheses = _shared["hub"].generate([torch.tensor(source) for source in sources], **_shared["search"])
    return [of_sentence[0]["tokens"].tolist() for of_sentence in hypotheses]
