"""Searches whose steps are recorded against searches whose caches grow."""

from typing import Any

import pytest
import torch
from models_for_tests import EOS, batch, small_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ode_transformer.decoding import beam_search, search_steps
from ode_transformer.decoding.search_steps import FixedSteps, GrowingSteps, choose_steps, record_cuda_graph

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


def search(models: list[Any], fixed_shapes: bool) -> list[Any]:
    dictionary = models[0].decoder.dictionary
    found = beam_search.BeamSearch(models, dictionary, beam_size=3, max_len_b=13, fixed_shapes=fixed_shapes)
    return found.generate(models, {"net_input": {"src_tokens": batch([6, 3, 1, 5])}})


@pytest.mark.parametrize(
    ("seeds", "factor", "options"),
    [
        ([2], 1.3, {"decoder_ode_scheme": "rk2"}),
        ([2], 2.25, {"arch": "ode_transformer_rk2", "max_relative_positions": 0, "decoder_learned_pos": True}),
        ([0, 1], 1.5, {"relative_values": True, "no_token_positional_embeddings": True}),
        ([3], 1.6, {"arch": "dlstm"}),
        ([10], 2, {"arch": "ode_transformer_lm_rk2"}),
    ],
)
def test_a_recorded_step_continues_the_search(
    seeds: list[int], factor: float, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [small_model(seed, **options) for seed in seeds]
    with torch.no_grad():
        models[0].decoder.embed_tokens.weight[EOS] *= factor  # hypotheses end at different positions
    expected = search(models, False)
    recordings: list[Recording] = []

    def build() -> Recording:
        recordings.append(Recording())
        return recordings[-1]

    def choose(*arguments: Any) -> GrowingSteps:
        steps = choose_steps(*arguments)
        steps.record = record_cuda_graph
        return steps

    monkeypatch.setattr(torch.cuda, "CUDAGraph", build)
    monkeypatch.setattr(torch.cuda, "graph", lambda recording, **_: recording)
    monkeypatch.setattr(beam_search, "choose_steps", choose)
    monkeypatch.setattr(search_steps, "_BLOCK", 5)
    for ours, theirs in zip(search(models, True), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert len({len(h["tokens"]) for of_sentence in expected for h in of_sentence}) > 2
    assert recordings[0].repetitions == 3
    assert len(recordings) > 1


def test_what_cannot_be_recorded_is_computed(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """A step on a machine that refuses; of the other kind of decoder, not even its shapes are fixed."""

    def refuse() -> None:
        raise RuntimeError("no graphs here")

    def choose(*arguments: Any) -> GrowingSteps:
        chosen.append(choose_steps(*arguments))
        chosen[-1].record = record_cuda_graph
        return chosen[-1]

    chosen: list[GrowingSteps] = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", refuse)
    for arch, kind in (("ode_transformer_euler", FixedSteps), ("reformer_fast", GrowingSteps)):
        models = [small_model(arch=arch)]
        expected = search(models, False)
        with monkeypatch.context() as patch:
            patch.setattr(beam_search, "choose_steps", choose)
            for ours, theirs in zip(search(models, True), expected, strict=True):
                torch.testing.assert_close(ours, theirs)
        assert type(chosen[-1]) is kind
    assert caplog.messages.count("decoding steps are not recorded: no graphs here") == 1
