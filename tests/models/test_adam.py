"""``fused_adam`` makes fairseq's updates, and either optimizer goes on from the other's state."""

import pytest
import torch
from fairseq.optim import FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from recorded_steps import build_optimizer

from ode_transformer.speed import flat as flat_tensors


@pytest.fixture(params=["separate", "flat"])
def storage(request: pytest.FixtureRequest) -> None:
    """Keeps the parameters as separate tensors, as on a CPU, or in one flat tensor, as on a GPU."""
    if request.param == "flat":
        request.getfixturevalue("flat")


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_tensors, "suits", lambda _: True)


def optimizer(name: str) -> FairseqOptimizer:
    generator = torch.Generator().manual_seed(1)
    parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((7, 5), (3,), ())]
    return build_optimizer(name, None, parameters)


def update(trained: FairseqOptimizer, count: int, begin: int = 0, max_norm: float = 1.0) -> list[float]:
    """Makes updates as fairseq's trainer does; the second parameter misses some. Returns the norms of the gradients."""
    norms = []
    for number in range(begin, begin + count):
        generator = torch.Generator().manual_seed(number)
        for index, parameter in enumerate(trained.params):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if index == 1 and number % 3 == 1 else gradient
        trained.multiply_grads(0.5)
        norms.append(float(trained.clip_grad_norm(max_norm)))
        trained.step()
        trained.zero_grad()
    return norms


def values(trained: FairseqOptimizer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trained.params])


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("max_norm", [0.0, 1.0, 9.0])
def test_updates_and_norms_are_fairseqs(max_norm: float) -> None:
    ours, theirs = optimizer("fused_adam"), optimizer("adam")
    assert update(ours, 9, max_norm=max_norm) == pytest.approx(update(theirs, 9, max_norm=max_norm), rel=1e-6)
    torch.testing.assert_close(values(ours), values(theirs), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("names", [("adam", "fused_adam"), ("fused_adam", "adam"), ("fused_adam", "fused_adam")])
def test_either_goes_on_from_the_state_of_the_other(names: tuple[str, str]) -> None:
    whole, first, second = optimizer("adam"), *(optimizer(name) for name in names)
    assert type(first).__name__ == type(second).__name__  # of which fairseq makes sure
    update(whole, 8)
    update(first, 4)
    second.load_state_dict(first.state_dict(), second.optimizer_config | {"lr": 0.01})
    for mine, other in zip(second.params, first.params, strict=True):
        mine.data.copy_(other.data)
    update(second, 4, begin=4)
    torch.testing.assert_close(values(second), values(whole), rtol=1e-6, atol=1e-6)
    assert all(isinstance(state["step"], int) for state in second.state_dict()["state"].values())


class HalfPrecision:
    """A training in half precision by one of fairseq's wrappers."""

    def __init__(self, name: str, wrapper: type, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(1)
        values = [torch.randn(shape, generator=generator) for shape in ((7, 5), (3,), ())]
        self.parameters = [value.to(dtype).requires_grad_() for value in values]
        self.optimizer = build_optimizer(name, wrapper, self.parameters)

    def update(self, begin: int, end: int) -> list[float]:
        """Makes updates, in some of which a parameter has no gradient; returns the norms of the gradients."""
        norms = []
        for number in range(begin, end):
            self.optimizer.zero_grad()
            used = self.parameters if number % 3 else self.parameters[::2]
            self.optimizer.backward(sum((p.float() - number).square().sum() for p in used))
            self.optimizer.multiply_grads(0.25)
            norms.append(float(self.optimizer.clip_grad_norm(1.0)))
            self.optimizer.step()
        return norms


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("wrapper", [MemoryEfficientFP16Optimizer, FP16Optimizer])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_updated_through_a_float32_copy(dtype: torch.dtype, wrapper: type) -> None:
    ours = HalfPrecision("fused_adam", wrapper, dtype)
    theirs = HalfPrecision("adam", FP16Optimizer, dtype)
    assert ours.update(0, 40) == pytest.approx(theirs.update(0, 40), rel=1e-5)
    precision = 2 * torch.finfo(dtype).eps  # the copies differ by rounding, which can round to a neighbour
    for mine, other in zip(ours.parameters, theirs.parameters, strict=True):
        torch.testing.assert_close(mine, other, rtol=precision, atol=precision)


@pytest.mark.usefixtures("flat")
def test_flat_parameters_stay_the_same_objects() -> None:
    trained = optimizer("fused_adam")
    parameters = list(trained.params)
    starts = [(p.data_ptr() - parameters[0].data_ptr()) / p.element_size() for p in parameters]
    assert starts == [0, 64, 128]
    update(trained, 2)
    assert all(p.data_ptr() == parameters[0].data_ptr() + 4 * int(s) for p, s in zip(parameters, starts, strict=True))
