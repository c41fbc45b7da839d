"""Search by several processes on a CPU, for texts long enough that it is faster.

A step of decoding is too small for several threads of one process. The processes are forks, which share the parameters
and start at once; each takes the next batch as soon as it is free, long sentences first.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from ode_transformer.support.commands import available_processors, end_with_parent
from ode_transformer.support.errors import UserError

BATCHES_PER_PROCESS = 2  # from which on a process more is faster than one with more threads

_model: dict[str, Any] = {}  # what a fork inherits


def can_share_lines(hub: Any) -> bool:
    """Return whether several processes can search with a model: with PyTorch on a CPU.

    :param hub: fairseq's ``GeneratorHubInterface``, or another engine, which has threads of its own
    """
    return hasattr(hub, "models") and hub.device.type == "cpu"


def default_processes(hub: Any, lines: int, batch_size: int) -> int:
    """Return how many processes translate a text fastest: one for each processor, if all have enough batches.

    :param hub: fairseq's ``GeneratorHubInterface``, or another engine
    """
    if not can_share_lines(hub):
        return 1
    return max(1, min(available_processors(), lines // (BATCHES_PER_PROCESS * batch_size)))


def search_in_processes(hub: Any, sources: Sequence[Any], processes: int, batch_size: int, **search: Any) -> list[Any]:
    """Return the token numbers of the best hypothesis for each source, in the order of the sources.

    :param hub: fairseq's ``GeneratorHubInterface``
    :param batch_size: sources of a batch
    :param search: options of fairseq's search
    :raises UserError: a process has ended without a result
    """
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    best: list[Any] = [None] * len(sources)
    _model.update(hub=hub, search=search)
    # All processes of a pool start at once, also those without a batch.
    pool = ProcessPoolExecutor(max(1, min(processes, len(batches))), get_context("fork"), _prepare_process)
    try:
        results = pool.map(_search, [[sources[number].tolist() for number in batch] for batch in batches])
        for batch, hypotheses in zip(batches, results, strict=True):
            for number, tokens in zip(batch, hypotheses, strict=True):
                best[number] = sources[number].new_tensor(tokens)
    except BrokenProcessPool as error:
        raise UserError(
            f"one of {processes} processes that translate was killed, perhaps for want of memory (--processes 1)"
        ) from error
    finally:
        _model.clear()
        pool.shutdown(cancel_futures=True)
    return best


def _prepare_process() -> None:
    import torch

    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C ends it without a traceback; a parent may ignore both
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    torch.set_num_threads(1)


def _search(sources: list[list[int]]) -> list[list[int]]:
    import torch

    hub = _model["hub"]
    hypotheses = hub.generate([torch.tensor(source) for source in sources], **_model["search"])
    return [of_sentence[0]["tokens"].tolist() for of_sentence in hypotheses]
