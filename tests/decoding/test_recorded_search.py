"""Searches whose whole steps are recorded against searches whose caches grow."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from batches import EOS, batch
from plain_models import small_plain_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ode_transformer.decoding import recorded_search
from ode_transformer.decoding.recorded_search import RecordedSearches
from ode_transformer.nn import BeamSearch, NoTranslation, SearchOptions, beam_search
from ode_transformer.speed import recording, search_attention

# Operators that wait for numbers of the GPU
WAITING = {"_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero", "unique_consecutive"}


class Recording(TorchDispatchMode):
    """A CUDA graph on the CPU: operators, to be repeated on the same memory without the Python code between them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.repetitions = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in WAITING
        self.calls.append((func, args, kwargs or {}, func(*args, **(kwargs or {}))))
        return self.calls[-1][-1]

    def replay(self) -> None:
        self.repetitions += 1
        for func, args, kwargs, result in self.calls if self.repetitions > 1 else ():  # recording has computed it once
            for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Recorder:
    def __init__(self, recordings: list[Recording]) -> None:
        self.recordings = recordings

    def record_inference(self, compute: Callable[[], None]) -> Callable[[], None]:
        self.recordings.append(Recording())
        with recording.recording(), self.recordings[-1]:
            compute()
        return self.recordings[-1].replay


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    made: list[Recording] = []
    monkeypatch.setattr(recording, "build_recorder", lambda _: Recorder(made))
    monkeypatch.setattr(recorded_search, "BLOCK", 5)
    monkeypatch.setattr(beam_search, "ROOM", 5)
    return made


def search(models: list[Any], lengths: list[int], recorded: RecordedSearches | None, **options: Any) -> list[Any]:
    chosen = SearchOptions(**{"beam": 3, "max_len_a": 0.5, "max_len_b": 9} | options)
    return BeamSearch(models, chosen, recorded).search(batch(lengths))


@pytest.mark.parametrize(
    ("seeds", "factor", "options", "search_options"),
    [
        ([2], 1.3, {"decoder_ode_scheme": "rk2"}, {"min_len": 3, "unknown_penalty": 0.5}),
        ([2], 3, {"arch": "ode_transformer_rk2", "max_relative_positions": 0, "decoder_learned_pos": True}, {}),
        ([0, 1], 2, {"relative_values": True, "no_token_positional_embeddings": True}, {"temperature": 1.5}),
        ([2], 1.6, {"arch": "dlstm"}, {"length_penalty": 0.0}),
    ],
)
def test_a_recorded_search_finds_the_same(
    recordings: list[Recording], seeds: list[int], factor: float, options: Any, search_options: Any
) -> None:
    """Two batches of one padded shape, and one of another."""
    models = [small_plain_model(seed, **options) for seed in seeds]
    for model in models:
        with torch.no_grad():
            model.decoder.embed_tokens.weight[EOS] *= factor  # hypotheses end at different positions
    recorded, found = RecordedSearches(), set()
    for lengths in ([6, 3, 1, 5], [7, 7, 2, 4], [9, 2]):
        expected = search(models, lengths, None, **search_options)
        for ours, theirs in zip(search(models, lengths, recorded, **search_options), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        found |= {len(h["tokens"]) for of_sentence in expected for h in of_sentence}
    assert len(found) > 2
    assert len(recordings) > 6  # of two shapes, the first step and a block or more each, in two memories
    assert recordings[0].repetitions == 2 + 2  # two batches, steps 1 and 3


@pytest.mark.parametrize("options", [{}, {"max_relative_positions": 0}, {"relative_values": True}])
def test_a_search_without_copies_finds_the_same_to_the_last_bit(
    recordings: list[Recording], options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative positions of values are of a cache that is reordered, as ever."""
    model, found = small_plain_model(2, arch="ode_transformer_rk2", **options), []
    with torch.no_grad():
        model.decoder.embed_tokens.weight[EOS] *= 1.3
    calls = Mock(side_effect=search_attention.attend_by_formula)
    for attend in (None, calls):
        monkeypatch.setattr(search_attention, "choose", lambda _, attend=attend: attend)
        recorded = RecordedSearches()
        found.append([search([model], lengths, recorded, min_len=3) for lengths in ([6, 3, 1, 5], [7, 7, 2, 4])])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert len({len(h["tokens"]) for batch in found[0] for of_sentence in batch for h in of_sentence}) > 2
    assert calls.called == ("relative_values" not in options)


def test_a_sentence_without_scores_leaves_later_batches_alone(recordings: list[Recording]) -> None:
    """As where numbers overflow in half precision; the batches have one shape."""
    model = small_plain_model()
    recorded, embedding = RecordedSearches(), model.encoder.embed_tokens.weight
    expected = search([model], [6, 3], None)
    for is_broken in (False, True, False):
        with torch.no_grad():
            numbers = embedding[EOS].clone()
            embedding[EOS] = torch.nan if is_broken else numbers
        if is_broken:
            with pytest.raises(NoTranslation, match="not numbers"):
                search([model], [6, 3], recorded)
        else:
            torch.testing.assert_close(search([model], [6, 3], recorded), expected)
        with torch.no_grad():
            embedding[EOS] = numbers


def test_what_cannot_be_recorded_is_computed(recordings: list[Recording], monkeypatch: Any, caplog: Any) -> None:
    """A step on a machine that refuses, and a decoder without such steps."""

    def refuse(*_: Any) -> None:
        raise RuntimeError("no graphs here")

    monkeypatch.setattr(Recorder, "record_inference", refuse)
    for arch in ("ode_transformer_euler", "reformer_fast"):
        models = [small_plain_model(arch=arch)]
        expected = search(models, [6, 3, 1], None)
        for ours, theirs in zip(search(models, [6, 3, 1], RecordedSearches()), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert caplog.messages.count("decoding steps are not recorded: no graphs here") == 1
    assert not recordings
