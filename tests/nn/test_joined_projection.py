import copy

import pytest
import torch
from torch import nn

from ode_transformer.nn.joined_projection import joined, project_heads
from ode_transformer.nn.linear import Linear

HEADS = 2


def projections() -> nn.ModuleList:
    return nn.ModuleList(Linear(6, 8) for _ in range(3)).double()


def separately(x: torch.Tensor, maps: nn.ModuleList) -> list[torch.Tensor]:
    return [p(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in maps]


def test_values_and_gradients_are_those_of_separate_maps() -> None:
    maps, x = projections(), torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    weights = [torch.randn(2, HEADS, 5, 4, dtype=torch.float64) for _ in maps]
    gradients = []
    for project in (lambda: project_heads(x, list(maps), HEADS), lambda: separately(x, maps)):
        outputs = project()
        inputs = [x, *maps.parameters()]
        gradients.append(torch.autograd.grad(sum((w * y).sum() for w, y in zip(weights, outputs, strict=True)), inputs))
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected)


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
    project_heads(torch.randn(2, 5, 6, dtype=torch.float64), maps, HEADS)[0].sum().backward()
    assert maps[0].weight.grad is not None
