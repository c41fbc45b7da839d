import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from ode_transformer.nn.joined_maps import apply_maps, joined
from ode_transformer.nn.linear import Linear

HEADS = 2


def projections() -> nn.ModuleList:
    return nn.ModuleList(Linear(6, 8) for _ in range(3)).double()


def separately(x: torch.Tensor, maps: nn.ModuleList, heads: int | None) -> list[torch.Tensor]:
    return [p(x) if heads is None else p(x).unflatten(-1, (heads, -1)).transpose(1, 2) for p in maps]


@pytest.mark.parametrize("heads", [None, HEADS])
@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("uses", [1, 3])
def test_values_and_gradients_are_those_of_separate_maps(uses: int, normalizes: bool, heads: int | None) -> None:
    """Also where the result of a use is the input of the next, and where a use has no effect."""
    maps, norm = projections()[: 1 if heads is None else 3], nn.LayerNorm(6).double()
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    inputs = [x, *maps.parameters(), *(norm.parameters() if normalizes else ())]

    def gradients(apply: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
        y = x
        for _ in range(uses):
            parts = apply(y)
            apply(y)
            first = parts[0] if heads is None else sum(parts).transpose(1, 2).flatten(-2)
            y = y + first[..., :6].tanh()
        return torch.autograd.grad(y.square().sum() + parts[0].sum(), inputs)

    chosen, passed = norm if normalizes else None, {} if uses > 1 else None
    ours = gradients(lambda y: apply_maps(y, maps, chosen, heads, passed))
    expected = gradients(lambda y: separately(norm(y) if normalizes else y, maps, heads))
    for got, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("change", [copy.deepcopy, lambda maps: maps.float(), lambda maps: maps.requires_grad_(False)])
def test_parameters_lie_side_by_side_and_stay_parameters(change) -> None:
    maps = projections()
    names = list(maps.state_dict())
    joined([p.weight for p in maps])
    maps = change(maps)
    whole = joined([p.weight for p in maps])
    assert torch.equal(whole, torch.cat([p.weight for p in maps]))
    assert joined([p.weight for p in maps]).data_ptr() == whole.data_ptr() == maps[0].weight.data_ptr()
    with torch.no_grad():
        maps[1].weight.zero_()
    assert not whole[8:16].any()
    assert list(maps.state_dict()) == names
    assert all(isinstance(p.weight, nn.Parameter) for p in maps)


def test_parameters_joined_during_a_search_can_be_trained() -> None:
    maps = projections()
    with torch.inference_mode():
        joined([p.weight for p in maps])
    apply_maps(torch.randn(2, 5, 6, dtype=torch.float64), maps, heads=HEADS)[0].sum().backward()
    assert maps[0].weight.grad is not None
