"""A step that is replayed from a recording computes what an unrecorded step computes, for every kind of model."""

import logging
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from batches import batch, teacher_forced
from graph_stand_in import RecomputingRecorder
from models_for_tests import SMALL, build_model, small_model
from recorded_steps import DROPOUT, SYSTEMS, build_criterion, gradients_of, sample_for
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ode_transformer.models.depth_log import log_depth
from ode_transformer.models.sample_log import log_samples
from ode_transformer.speed.recording import recording


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_replay_computes_loss_and_gradients_of_the_batch(name: str) -> None:
    model = small_model(**SYSTEMS[name]).train()
    arch = SYSTEMS[name].get("arch", "")
    recorded, unrecorded = build_criterion(arch, cuda_graphs=True), build_criterion(arch)
    for seed in range(3):
        sample = sample_for(arch, seed)
        outcomes = []
        for criterion in (recorded, unrecorded):
            model.zero_grad()
            loss, size, log = criterion(model, sample)
            (3 * loss).backward()
            outcomes.append(({"size": int(size), "loss": loss.detach(), **log}, gradients_of(model)))
        ours, other = outcomes
        assert ours[0].pop("graph_replays") == (seed > 0)
        for key in other[0]:
            torch.testing.assert_close(torch.as_tensor(ours[0][key]), torch.as_tensor(other[0][key]), rtol=1e-6, atol=0)
        torch.testing.assert_close(ours[1], other[1], rtol=1e-4, atol=1e-6)


class OneDevice(TorchDispatchMode):
    """Refuses copies from the CPU to another device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        assert len({x.device.type for x in tensors if x.dim()}) < 2, func
        return result


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_recorded_step_looks_at_no_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor on the device ``meta`` has no values, so that a look at one fails."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # which knows no such device
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    options = {"arch": "ode_transformer_euler"} | SMALL | SYSTEMS[name]
    model = build_model(**options).to("meta").train()
    criterion = build_criterion(options["arch"])
    inputs = {key: x.to("meta") for key, x in criterion.inputs(sample_for(options["arch"], 0)).items()}
    with recording(), OneDevice():
        loss, results = criterion.step(model, inputs)
        loss.backward()
    assert {x.device.type for x in (loss, *results.values())} == {"meta"}
    assert all(parameter.grad is not None for parameter in model.parameters())


def replays(criterion: Any, model: Any, sample: dict[str, Any], times: int = 3, reduce: bool = True) -> int:
    """Compute a sample some times; return how often it was replayed."""
    return sum(criterion(model, sample, reduce)[2].get("graph_replays", 0) for _ in range(times))


@pytest.mark.parametrize("options", [{}, SYSTEMS["rk2"], SYSTEMS["reformer_fast"], SYSTEMS["bert"]])
def test_a_replay_has_the_dropout_of_an_unrecorded_step(options: dict[str, Any]) -> None:
    model = small_model(**options, **DROPOUT).train()
    arch, outcomes = options.get("arch", ""), []
    for records in (True, False):
        criterion = build_criterion(arch, cuda_graphs=True)
        criterion(model, sample_for(arch, 0))
        if not records:
            criterion.recorded.recorder = None
        for seed in (1, 2):
            model.zero_grad()
            torch.manual_seed(seed)
            for part in (0, 2):  # one update of two batches of the same shape
                loss, _, log = criterion(model, sample_for(arch, seed + part))
                assert log["graph_replays"] == records
                loss.backward()
            outcomes.append((loss.detach(), gradients_of(model), torch.get_rng_state()))
    torch.testing.assert_close(outcomes[:2], outcomes[2:], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["recomputed", "divided_reformer"])
def test_what_draws_dropout_again_is_unrecorded(name: str) -> None:
    arch = SYSTEMS[name].get("arch", "")
    model = small_model(**SYSTEMS[name], **DROPOUT).train()
    assert not replays(build_criterion(arch, cuda_graphs=True), model, sample_for(arch, 0))


def test_only_plain_training_steps_are_replayed() -> None:
    model = small_model().train()
    criterion, sample = build_criterion("", cuda_graphs=True), sample_for("", 0)
    log_samples(model, 2)  # looks at batches of a validation alone
    assert replays(criterion, model, sample) == 2
    assert not replays(criterion, model, sample, reduce=False)
    with torch.no_grad():
        assert not replays(criterion, model, sample)
    hook = model.encoder.layers[0].register_forward_hook(lambda *_: None)  # as fairseq's NanDetector has them
    assert not replays(criterion, model, sample)
    hook.remove()
    other = sample | {"net_input": sample["net_input"] | {"alignments": None}}
    with pytest.raises(TypeError, match="alignments"):  # the model says so, as without recordings
        replays(criterion, model, other)
    log_depth(model, 2)
    model.depth_log.set_num_updates(0)
    assert replays(criterion, model, sample) == 3
    model.depth_log.set_num_updates(1)  # the update that is logged
    assert replays(criterion, model, sample, times=1) == 0
    assert not replays(criterion, model.eval(), sample)


def test_gradients_go_where_an_optimizer_wants_them() -> None:
    model = small_model().train()
    unused = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    model.register_parameter("unused", unused)
    criterion, sample = build_criterion("", cuda_graphs=True), sample_for("", 0)
    assert replays(criterion, model, sample) == 2
    first = model.decoder.embed_tokens.weight
    criterion(model, sample)[0].backward()
    once = first.grad.clone()
    static = first.grad
    first.grad = 2 * once  # another tensor, whose numbers count
    loss = criterion(model, sample)[0]
    loss *= 0  # as fairseq does with a dummy batch
    loss.backward()
    torch.testing.assert_close(first.grad, 2 * once)
    model.zero_grad()
    criterion(model, sample)[0].backward()
    torch.testing.assert_close(first.grad, once)
    assert first.grad is static
    assert unused.grad is None


def test_a_backward_pass_replays_its_own_forward_pass_alone() -> None:
    model = small_model().train()
    criterion, sample = build_criterion("", cuda_graphs=True), sample_for("", 0)
    assert replays(criterion, model, sample) == 2
    first, second = (criterion(model, sample_for("", seed))[0] for seed in (0, 2))
    with pytest.raises(RuntimeError, match="before the next forward pass"):
        first.backward()
    second.backward()


def test_a_divided_batch_may_be_padded_by_rows() -> None:
    """26 rows for 25 pairs; the parts of the first pass are made by the values, and rows of padding are a part."""
    model = small_model(arch="reformer_fast", max_joint_cells=240).train()
    criterion, source, target = build_criterion("", cuda_graphs=True), batch([14] * 25), batch([14] * 25, 1)
    net_input = {
        "src_tokens": source,
        "src_lengths": torch.full((25,), 14),
        "prev_output_tokens": teacher_forced(target),
    }
    sample = {"net_input": net_input, "target": target, "ntokens": 25 * 14, "nsentences": 25}
    losses = [criterion(model, sample)[0].detach() for _ in range(3)]
    expected = build_criterion("")(model, sample)[0]
    for loss in losses:
        torch.testing.assert_close(loss, expected.detach())


def test_the_least_used_recordings_go_when_memory_ends() -> None:
    model = small_model().train()
    criterion, samples = build_criterion("", cuda_graphs=True), [sample_for("", seed) for seed in range(3)]
    for number, sample in enumerate(samples):  # of one, two and three rows
        for key, x in sample["net_input"].items():
            sample["net_input"][key] = x[: number + 1]
        sample["target"] = sample["target"][: number + 1]
    assert replays(criterion, model, samples[0], times=2) == 1
    criterion.recorded.memory = 1  # byte; a recording of the stand-in says that it takes one
    assert replays(criterion, model, samples[1], times=5) == 4
    assert replays(criterion, model, samples[2], times=4) == 3
    assert len(criterion.recorded.steps) == 2
    assert replays(criterion, model, samples[0], times=1) == 0  # dropped, and still used least


def test_a_training_goes_on_when_memory_ends_while_recording(monkeypatch, caplog) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB.")

    model = small_model().train()
    criterion, sample = build_criterion("", cuda_graphs=True), sample_for("", 0)
    expected = criterion(model, sample)[0]
    monkeypatch.setattr(RecomputingRecorder, "record", fail)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            torch.testing.assert_close(criterion(model, sample)[0], expected)
    assert [record.message.count("out of memory") for record in caplog.records] == [1]
