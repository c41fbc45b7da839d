"""Faults of the pinned fairseq's batches, each shown in its own function and gone with the correction."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batches import EOS, PAD
from fairseq.data import (
    Dictionary,
    LanguagePairDataset,
    TokenBlockDataset,
    bucket_pad_length_dataset,
    data_utils,
    iterators,
)
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ode_transformer.models.fairseq_corrections import batches


def pairs(number: int = 30, **options: Any) -> LanguagePairDataset:
    """Sentence pairs of several lengths."""
    dictionary = Dictionary()
    sentences = [torch.tensor([4] * (1 + index % 4) + [EOS]) for index in range(number)]
    sizes = np.array([len(sentence) for sentence in sentences])
    return LanguagePairDataset(sentences, sizes, dictionary, sentences, sizes, dictionary, **options)


def batches_of_epochs(*stops: int) -> list[list[list[int]]]:
    """Return the batches of four epochs of a training that is stopped after some of its batches and resumed."""
    state, seen = {"epoch": 1}, [[] for _ in range(4)]
    for stop in (*stops, 4 * 10):
        task = TranslationTask(TranslationConfig(), Dictionary(), Dictionary())
        iterator = task.get_batch_iterator(dataset=pairs(), max_sentences=3, epoch=state["epoch"])
        iterator.load_state_dict(state)
        while iterator.next_epoch_idx <= 4 and sum(map(len, seen)) < stop:
            for sample in iterator.next_epoch_itr():
                seen[iterator.epoch - 1].append(sample["id"].tolist())
                if sum(map(len, seen)) == stop:
                    break
        state = iterator.state_dict()
    return seen


def test_a_resumed_training_goes_on_with_the_batches_of_its_start(pinned: Callable[[Any, str], None]) -> None:
    whole = batches_of_epochs()
    assert batches_of_epochs(5, 20, 27) == whole
    assert all(sorted(sum(epoch, [])) == list(range(30)) for epoch in whole)
    pinned(FairseqTask, "get_batch_iterator")
    assert batches_of_epochs() == whole
    resumed = batches_of_epochs(27)
    assert resumed[2] != whole[2]
    assert sorted(sum(resumed[2], [])) != list(range(30))  # some sentences twice, others never


def epoch_of(state: dict[str, Any] | None, stop: int | None, size: int, shard: int = 0, shards: int = 1) -> Any:
    """Return the sentences of an epoch's next batches, a list for each, and where the epoch was left."""
    task = TranslationTask(TranslationConfig(), Dictionary(), Dictionary())
    dataset = pairs()
    iterator = task.get_batch_iterator(dataset=dataset, max_sentences=size, shard_id=shard, num_shards=shards)
    if state is not None:
        iterator.load_state_dict(state)
    batches = itertools.islice(iterator.next_epoch_itr(), stop)
    return [sample["id"].tolist() for sample in batches if sample], iterator.state_dict()


def test_an_epoch_goes_on_after_the_same_share_of_other_batches(pinned: Callable[[Any, str], None]) -> None:
    read, state = epoch_of(None, 6, 3)
    assert state["iterations_in_epoch"] == 6
    for size, remaining in ((3, 4), (6, 2), (4, 4), (1, 12)):
        assert len(epoch_of(state, None, size)[0]) == remaining
    old = {name: value for name, value in state.items() if name not in ("batches", "processes")}
    assert len(epoch_of(old, None, 3)[0]) == 4
    assert len(epoch_of(old, None, 6)[0]) == 1

    # Another number of processes reads what the others have not.
    halves = [epoch_of(state, None, 3, shard, 2)[0] for shard in (0, 1)]
    assert sorted(sum(sum(halves, read), [])) == list(range(30))
    pinned(iterators.EpochBatchIterator, "load_state_dict")
    with pytest.raises(RuntimeError, match="report this"):
        epoch_of(state, None, 6)
    assert len(epoch_of(state, None, 4)[0]) == 2
    pinned(iterators.EpochBatchIterator, "state_dict")
    assert not {"batches", "processes"} & epoch_of(None, 6, 3)[1].keys()


def test_all_that_is_left_of_an_epoch_is_grouped(pinned: Callable[[Any, str], None]) -> None:
    def groups(read: int, size: int, skip: bool = False) -> list[list[int]]:
        batches = iterators.CountingIterator(range(10)).skip(read)
        found = list(iterators.GroupedIterator(batches, size, skip))
        assert not batches.has_next()  # the epoch has ended
        return found

    assert groups(0, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert groups(4, 4) == [[4, 5, 6, 7], [8, 9]]
    assert groups(3, 4) == [[3, 4, 5, 6], [7, 8, 9]]
    assert groups(9, 4) == [[9]]
    assert groups(1, 3) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert groups(0, 4, skip=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(1, 4, skip=True) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert groups(7, 4, skip=True) == [[7, 8, 9]]
    pinned(iterators.GroupedIterator, "__init__")
    assert groups(1, 3) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    with pytest.raises(AssertionError):
        groups(9, 4)  # none


def test_the_last_batch_is_kept(pinned: Callable[[Any, str], None]) -> None:
    options = {"max_sentences": 8, "required_batch_size_multiple": 8}
    assert np.concatenate(pairs().batch_by_size(np.arange(30), **options)).tolist() == list(range(30))
    pinned(data_utils, "batch_by_size")
    assert sum(map(len, pairs().batch_by_size(np.arange(30), **options))) == 24


def test_length_buckets_with_numpy_2(pinned: Callable[[Any, str], None]) -> None:
    buckets = pairs(num_buckets=2)
    assert sorted({len(buckets[number]["source"]) for number in range(30)}) == [3, 5]
    assert len(TokenBlockDataset([torch.tensor([4, EOS])] * 3, [2] * 3, None, PAD, EOS, break_mode="eos")) == 3
    pinned(bucket_pad_length_dataset, "get_buckets")
    with pytest.raises(TypeError, match="interpolation"):
        pairs(num_buckets=2)


def test_without_the_name_that_numpy_2_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "compat")
    with pytest.raises(AttributeError, match="compat"):
        pairs(num_buckets=2)


def test_batches_are_not_loaded_while_python_ends(pinned: Callable[[Any, str], None]) -> None:
    def outlives() -> bool:
        loaded = iterators.BufferedIterator(2, range(100))
        next(loaded)
        batches.stop_loaders()
        return loaded._consumer.is_alive()

    assert not outlives()
    pinned(iterators.BufferedIterator, "_create_consumer")
    assert outlives()
