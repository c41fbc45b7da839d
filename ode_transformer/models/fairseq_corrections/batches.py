"""Corrections of fairseq's batches: which sentences an epoch reads, and what a resumed epoch has left."""

import atexit
import contextlib
import logging
import math
import queue
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from fairseq.data import (
    LanguagePairDataset,
    bucket_pad_length_dataset,
    data_utils,
    iterators,
    language_pair_dataset,
)
from fairseq.tasks import FairseqTask

from ode_transformer.models.fairseq_corrections.replacing import Function, replace
from ode_transformer.models.pair_batches import PairBatch, pad_pairs, read_pairs

_LOG = logging.getLogger(__name__)


@replace(LanguagePairDataset, "__getitems__", lambda pairs, numbers: [pairs[number] for number in numbers])
def _read_pairs_at_once(original: Function, pairs: LanguagePairDataset, numbers: Sequence[int]) -> Any:
    """Read the pairs of a batch at once, where fairseq copies sentence by sentence."""
    return read_pairs(pairs, numbers) or original(pairs, numbers)


@replace(language_pair_dataset, "collate")
def _pad_pairs_at_once(original: Function, samples: Any, *symbols: int, **options: Any) -> dict[str, Any]:
    """Pad the pairs that were read at once."""
    pad = pad_pairs if isinstance(samples, PairBatch) else original
    return pad(samples, *symbols, **options)


@replace(data_utils, "batch_by_size")
def _keep_last_batch(original: Function, indices: Any, *arguments: Any, **options: Any) -> Any:
    """Keep all sentences: fairseq drops a last batch that ``--required-batch-size-multiple`` does not divide (5036)."""
    batches = original(indices, *arguments, **options)
    remaining = indices[sum(map(len, batches)) :]
    return [*batches, remaining] if len(remaining) else batches


@replace(FairseqTask, "get_batch_iterator")
def _batch_as_from_the_start(
    original: Function, task: FairseqTask, dataset: Any, *arguments: Any, epoch: int = 1, **options: Any
) -> Any:
    """Form the batches that a training keeps in all its epochs by the number of its first, also when it is resumed.

    fairseq takes the number of the epoch in which it is resumed: sentences are then repeated and left out.
    """
    forms_anew = options.get("disable_iterator_cache") or options.get("update_epoch_batch_itr")
    keeps = not forms_anew and task.can_reuse_epoch_itr(dataset)
    is_new = dataset not in task.dataset_to_epoch_iter
    iterator = original(task, dataset, *arguments, epoch=1 if keeps else epoch, **options)
    if keeps and is_new:
        iterator.epoch = epoch
    return iterator


@replace(iterators.EpochBatchIterator, "state_dict")
def _count_batches(original: Function, iterator: iterators.EpochBatchIterator) -> dict[str, Any]:
    """Write beside the position within an epoch how many batches it has, and for how many processes."""
    return {**original(iterator), "batches": len(iterator.frozen_batches), "processes": iterator.num_shards}


@replace(iterators.EpochBatchIterator, "load_state_dict")
def _resume_within_other_batches(
    original: Function, iterator: iterators.EpochBatchIterator, state: dict[str, Any]
) -> None:
    """Resume an epoch after the same share of its batches, if another ``--max-tokens`` or number of GPUs forms others.

    fairseq leaves out as many of the new batches as were read of the old, or asks to report that there are fewer.
    """
    iterator.epoch = state["epoch"]
    position = state.get("iterations_in_epoch", 0)
    resumed = min(position, len(iterator) - 1)
    if "batches" in state:
        share = position * state["processes"] * len(iterator.frozen_batches) // state["batches"]
        resumed = share // iterator.num_shards
    if resumed != position:
        _LOG.info(
            f"epoch {iterator.epoch} is resumed at its batch {resumed + 1} of {len(iterator)}: they are not those of "
            "the checkpoint, so that sentences may be read twice in this epoch, or not at all"
        )
    original(iterator, {**state, "iterations_in_epoch": resumed})


@replace(iterators.GroupedIterator, "__init__")
def _group_what_remains(
    original: Function, groups: Any, batches: Any, size: int, skip_remainder_batch: bool = False
) -> None:
    """Group all batches that a resumed epoch has left; fairseq rounds those that were read up to whole groups.

    ``--skip-remainder-batch`` leaves out a last group that is too small, unless no other is left.
    """
    read = getattr(batches, "n", 0)
    if skip_remainder_batch:
        left = len(batches) - read
        batches.take(read + (left // size * size or left))
    original(groups, batches, size)
    groups.n = groups.total - math.ceil((len(batches) - read) / size)


@replace(iterators.BufferedIterator, "_create_consumer")
def _stop_loading_at_exit(original: Function, batches: iterators.BufferedIterator) -> None:
    """End the thread that loads batches ahead, which aborts the process if it outlives Python."""
    original(batches)
    _LOADERS.add(batches._consumer)


_LOADERS: weakref.WeakSet[iterators.BackgroundConsumer] = weakref.WeakSet()


@atexit.register
def stop_loaders() -> None:
    """End the threads that load batches ahead."""
    for loader in list(_LOADERS):
        loader._max_len = 0  # the batch that is being loaded is the last
        while loader.is_alive():
            with contextlib.suppress(queue.Empty):
                loader._queue.get(timeout=0.1)


@replace(bucket_pad_length_dataset, "get_buckets")
def _length_buckets(original: Function, sizes: Any, buckets: int) -> np.ndarray:
    """Return the upper bounds of ``--num-batch-buckets`` lengths; NumPy 2.4 renamed the argument that fairseq gives."""
    return np.unique(np.percentile(sizes, np.linspace(0, 100, buckets + 1), method="lower")[1:])


# Left out of NumPy 2, and read by --num-batch-buckets and by fairseq-interactive with a language model.
if not hasattr(np, "compat"):
    np.compat = SimpleNamespace(long=np.int64)  # type: ignore[attr-defined]
