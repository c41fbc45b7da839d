"""Dropout whose noise axes may share, and where a sub-layer drops."""

import pytest
import torch
from torch import nn

from ode_transformer.nn import FeedForward, FeedForwardSubLayer
from ode_transformer.nn.dropout import Dropout, WordDropout

P = 0.3


def noise(shared: tuple[int, ...], seed: int = 0, rows: int = 30, columns: int = 40) -> torch.Tensor:
    torch.manual_seed(seed)
    return Dropout(P, shared)(torch.ones(2, rows, columns, 16, dtype=torch.float64))


@pytest.mark.parametrize("shared", [(), (1,), (2,), (1, 2)])
def test_noise_is_equal_along_the_shared_axes_and_along_no_other(shared: tuple[int, ...]) -> None:
    made = noise(shared)
    for axis in range(4):
        same = bool((made == made.narrow(axis, 0, 1)).all())
        assert same == (axis in shared)


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.9])
def test_elements_of_their_own_are_zeroed_one_by_one(probability: float) -> None:
    x = torch.ones(401, 1001, requires_grad=True)
    torch.manual_seed(1)
    made = Dropout(probability)(x)
    zeros = made.eq(0)
    deviation = (probability * (1 - probability) / x.numel()) ** 0.5
    assert abs(zeros.double().mean().item() - probability) < 4 * deviation + 2**-17
    assert made.max().item() == pytest.approx(1 / (1 - probability), rel=1e-4)
    # The four elements of one draw know nothing of each other: both vanish as often as independent ones.
    neighbours = (zeros[:, :-1] & zeros[:, 1:]).double().mean().item()
    assert abs(neighbours - probability**2) < 5 * deviation * probability + 2**-16
    made.sum().backward()
    torch.testing.assert_close(x.grad, made.detach())


def test_words_vanish_as_a_whole_and_in_training_alone() -> None:
    dropout, x = WordDropout(P), torch.ones(40, 50, 8)
    kept = dropout(x).ne(0)
    assert torch.equal(kept, kept[..., :1].expand_as(kept))
    assert abs(kept.double().mean().item() - (1 - P)) < 0.05
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_acts_on_the_increment_alone() -> None:
    sublayer = FeedForwardSubLayer(FeedForward(8, 12, torch.relu), 8, dropout=0.5)
    nn.init.normal_(sublayer.function.fc2.bias)
    x = torch.randn(64, 8)
    out = sublayer(x, None)
    kept = out != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(out[kept], 2 * sublayer.eval()(x, None)[kept])
