import pytest
import torch

from ode_transformer.nn import WordDropout


def test_zeroes_whole_positions_and_does_not_rescale() -> None:
    torch.manual_seed(0)
    embedding = torch.rand(50, 40, 4) + 1
    out = WordDropout(0.2)(embedding)
    dropped = (out == 0).all(-1)
    assert torch.equal(out[~dropped], embedding[~dropped])
    assert 0.15 < dropped.float().mean() < 0.25


def test_does_nothing_in_evaluation_or_at_zero() -> None:
    embedding = torch.rand(3, 4, 5)
    assert WordDropout(0.0)(embedding) is embedding
    assert WordDropout(0.5).eval()(embedding) is embedding


@pytest.mark.parametrize("probability", [-0.1, 1.0, 2.0, float("nan")])
def test_refuses_what_is_no_probability(probability: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\)"):
        WordDropout(probability)
