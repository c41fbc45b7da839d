import torch

from ode_transformer.numerics import sequential_increment


def test_the_increment_is_what_the_steps_add_in_turn() -> None:
    fields = [torch.sin, lambda y: y.flip(-1) ** 2, torch.tanh]
    y = torch.randn(2, 5, dtype=torch.float64)
    passed = y
    for field in fields:
        passed = passed + field(passed)
    torch.testing.assert_close(y + sequential_increment(fields, y), passed)


def test_a_small_increment_survives_a_large_state() -> None:
    y = torch.full((3,), 1e8)
    assert torch.equal(sequential_increment([lambda y: torch.full_like(y, 1e-3)], y), torch.full((3,), 1e-3))
