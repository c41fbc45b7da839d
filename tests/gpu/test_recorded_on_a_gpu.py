"""What only a GPU shows: CUDA graphs of training steps, and the launches of an update."""

from types import SimpleNamespace
from typing import Any

import interpreted_adam
import interpreted_attention
import interpreted_search
import launches
import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY
from interpreted_sublayers import CASES, assert_formula, functions
from models_for_tests import small_model
from recorded_steps import DROPOUT, SYSTEMS, build_criterion, gradients_of, sample_for
from torch.profiler import ProfilerActivity, profile

from ode_transformer.nn import LayerHistory
from ode_transformer.numerics import RungeKutta, add_weighted, get_tableau
from ode_transformer.speed import kernels, losses, recording

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def on_gpu(sample: dict[str, Any]) -> dict[str, Any]:
    net_input = {name: x.cuda() for name, x in sample["net_input"].items()}
    return sample | {"net_input": net_input, "target": sample["target"].cuda()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in ("recomputed", "divided_reformer")])
def test_a_replay_has_loss_and_gradients_of_an_unrecorded_step_with_dropout(name: str, dtype: torch.dtype) -> None:
    arch, outcomes = SYSTEMS[name].get("arch", ""), []
    model = small_model(**SYSTEMS[name], **DROPOUT).to("cuda", dtype).train()
    for records in (True, False):
        criterion = build_criterion(arch, cuda_graphs=True)
        criterion(model, on_gpu(sample_for(arch, 0)))
        if not records:
            criterion.recorded.recorder = None
        for seed in (1, 2, 3):
            model.zero_grad()
            torch.manual_seed(seed)
            loss, _, log = criterion(model, on_gpu(sample_for(arch, seed)))
            assert log["graph_replays"] == records
            loss.backward()
            outcomes.append((loss.detach(), gradients_of(model)))
    tolerance = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]
    torch.testing.assert_close(outcomes[:3], outcomes[3:], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["recomputed", "divided_reformer"])
def test_what_is_computed_again_is_recorded_without_dropout(name: str) -> None:
    arch = SYSTEMS[name].get("arch", "")
    model = small_model(**SYSTEMS[name]).float().cuda().train()
    criterion, sample = build_criterion(arch, cuda_graphs=True), on_gpu(sample_for(arch, 0))
    losses, replays = [], []
    for _ in range(3):
        loss, _, log = criterion(model, sample)
        losses.append(loss.detach())  # a graph that stays alive holds nodes of the stream on which it was computed
        replays.append(log["graph_replays"])
    assert replays == [0, 1, 1]
    torch.testing.assert_close(losses[-1], losses[0])


def test_two_trainings_with_one_seed_give_equal_bits() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        model = small_model(**DROPOUT).half().cuda().train()
        criterion, adam = build_criterion("", cuda_graphs=True), torch.optim.Adam(model.parameters(), eps=1e-4)
        for seed in range(6):
            adam.zero_grad()
            torch.manual_seed(seed)
            criterion(model, on_gpu(sample_for("", seed)))[0].backward()
            adam.step()
        models.append(model.state_dict())
    torch.testing.assert_close(*models, rtol=0, atol=0)


@pytest.mark.parametrize("refused", [False, True])
def test_a_training_survives_a_recording_that_fails(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **settings: Any) -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), **settings):
            numbers = torch.rand(3, device="cuda")
            if refused:
                numbers.tolist()  # a look at the GPU, which ends the recording
            raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(recording, "CUDARecording", fail)
    model = small_model(**DROPOUT).float().cuda().train()
    criterion, sample = build_criterion("", cuda_graphs=True), on_gpu(sample_for("", 0))
    losses = []
    for _ in range(3):
        torch.manual_seed(1)
        loss, _, log = criterion(model, sample)
        losses.append(loss)
        assert not log["graph_replays"]
    assert losses[0] == losses[1] == losses[2]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_an_update_of_the_base_models_size_is_at_most_eight_launches() -> None:
    cfg = SimpleNamespace(lr=[1e-3], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.0)
    parameters = [torch.randn(300_000, device="cuda", dtype=torch.float16).requires_grad_() for _ in range(200)]
    optimizer = OPTIMIZER_REGISTRY["fused_adam"](cfg, parameters)

    def update() -> None:
        optimizer.multiply_grads(0.5)
        optimizer.clip_grad_norm(1.0)
        optimizer.step()

    for parameter, part in zip(parameters, optimizer._gradients.parts, strict=True):
        parameter.grad = part  # as a recorded training has them
    update()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        update()
        torch.cuda.synchronize()
    kernels = [event for event in profiler.key_averages() if event.device_type.name == "CUDA"]
    copies = [event.key for event in kernels if "HtoD" in event.key]
    assert not copies
    assert sum(event.count for event in kernels if "Mem" not in event.key) <= 8, [(e.key, e.count) for e in kernels]


def test_one_increment_is_added_as_in_float32() -> None:
    y, f = torch.randn(2, 1_000_000, device="cuda").half()
    for weight in (1.0, 0.5, 1 / 6, 1 / 3):
        torch.testing.assert_close(
            add_weighted(y, [weight], [f]), torch.add(y.float(), f, alpha=weight).half(), rtol=0, atol=0
        )


def test_a_layer_history_is_its_sum_in_double_precision() -> None:
    layers, dim = 6, 512
    made = LayerHistory(RungeKutta(get_tableau("euler")), layers, dim, learned=True).cuda().half()
    y0 = torch.randn(100, 30, dim, device="cuda").half().requires_grad_()
    x, states = made(y0)
    for _ in range(layers):
        x, states = made(torch.tanh(x), states)
    weights = made.weight[layers].double()
    expected = sum(w * s.double() for w, s in zip(weights, states.single, strict=True))
    torch.testing.assert_close(x.double(), expected, rtol=2e-3, atol=2e-3)
    x.sum().backward()
    torch.testing.assert_close(
        made.weight.grad[layers].double(), torch.stack(states.single).double().sum((1, 2, 3)), rtol=5e-3, atol=2.0
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_kernels_of_the_loss_compute_the_formula(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 3 * torch.randn(1000, 34040, device="cuda")
    target, outcomes = torch.randint(1, 34040, (1000,), device="cuda"), []
    for is_used in (False, True):
        monkeypatch.setattr(kernels, "is_used", lambda *_, is_used=is_used: is_used)
        z = logits.to(dtype).requires_grad_()
        loss, nll = losses.label_smoothed_cross_entropy(z * 1, target, 1, 0.1)
        (loss.sum() * 128).backward()
        outcomes.append((loss.detach(), nll, z.grad))
    torch.testing.assert_close(outcomes[1][:2], outcomes[0][:2], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(outcomes[1][2], outcomes[0][2], rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("case", interpreted_search.CASES, ids=str)
def test_the_kernel_of_a_search_attends_as_the_formula(case: Any) -> None:
    ours, expected = (interpreted_search.outcome(*case, by_kernel, "cuda") for by_kernel in (True, False))
    tolerance = max(1e-5, 4 * torch.finfo(case[0]).eps)
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", interpreted_adam.DTYPES)
def test_an_update_by_the_kernel_is_that_of_pytorch(dtype: torch.dtype) -> None:
    ours, theirs = (interpreted_adam.updates(dtype, by_kernel, "cuda") for by_kernel in (True, False))
    for outcome, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(outcome[2:], expected[2:], rtol=5e-7, atol=2e-7)
        torch.testing.assert_close(outcome[:2], expected[:2], rtol=torch.finfo(dtype).eps, atol=0)
    torch.testing.assert_close(ours[2], ours[1], rtol=0, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_the_kernels_of_sublayers_compute_the_formula(case: Any) -> None:
    assert_formula(case, functions(*case, device="cuda"))


@pytest.mark.parametrize("case", [*interpreted_attention.CASES, (torch.bfloat16, 128, 128, 20, True)])
def test_the_kernels_of_attention_compute_the_formula(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreted_attention, "WIDTH", max(40, case[2]))  # a mask is read from one-hot values
    interpreted_attention.assert_formula(case, interpreted_attention.outcome(case, "cuda"))


def test_masks_of_kernels_are_those_of_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "is_used", lambda name, _: name in ("sublayers", "attention"))
    model, sample = small_model(**DROPOUT).half().cuda().train(), on_gpu(sample_for("", 0))
    criterion, outcomes = build_criterion("", cuda_graphs=True), []
    criterion(model, sample)[0].backward()
    for number in range(4):
        if number == 1:
            state = torch.cuda.get_rng_state()
        elif number >= 2:
            torch.cuda.set_rng_state(state)
        if number == 3:  # as when a training is resumed: its first batch of a shape is unrecorded
            criterion = build_criterion("", cuda_graphs=True)
        model.zero_grad()
        loss, _, log = criterion(model, sample)
        assert log["graph_replays"] == (number < 3)
        loss.backward()
        outcomes.append((loss.detach(), gradients_of(model)))
    assert outcomes[0][0] != outcomes[1][0]
    torch.testing.assert_close(outcomes[2], outcomes[1], rtol=0, atol=0)
    torch.testing.assert_close(outcomes[3], outcomes[1], rtol=1e-2, atol=1e-2)


def test_the_meter_counts_the_launches_of_a_recorded_step() -> None:
    meter = launches.measure("euler-6-recorded", 163).total
    system = launches.build("euler-6-recorded", 163, "base", "cuda")
    system.model.train()
    for _ in range(3):
        (system.loss() / system.batch["ntokens"]).backward()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        (system.loss() / system.batch["ntokens"]).backward()
        torch.cuda.synchronize()
    events = [event for event in profiler.key_averages() if event.device_type.name == "CUDA"]
    assert sum(event.count for event in events) == pytest.approx(meter.launches, rel=0.08)
