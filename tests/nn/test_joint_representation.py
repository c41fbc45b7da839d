"""From two sequences to a grid, and back to one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.nn import Reduction, joint_representation, parts_of_batch

B, S, T, C = 2, 4, 3, 6


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reduction(kind: str = "softmax", **options: bool) -> Reduction:
    torch.manual_seed(1)
    made = Reduction(C, kind, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def test_each_cell_is_the_sum_or_the_pair_of_its_two_positions() -> None:
    source, target = tensor(B, S, C), tensor(B, T, C, seed=1)
    added, paired = (joint_representation(source, target, how) for how in ("add", "concat"))
    assert (added.shape, paired.shape) == ((B, S, T, C), (B, S, T, 2 * C))
    for s in range(S):
        for t in range(T):
            assert torch.equal(added[:, s, t], source[:, s] + target[:, t])
            assert torch.equal(paired[:, s, t], torch.cat([source[:, s], target[:, t]], dim=-1))


@pytest.mark.parametrize("normalize_before", [True, False])
@pytest.mark.parametrize("kind", ["softmax", "max"])
def test_reduction_by_loops(kind: str, normalize_before: bool) -> None:
    made, x = reduction(kind, normalize_before=normalize_before), tensor(B, S, T, C)
    lengths = (S, S - 2)
    padding = torch.arange(S) >= torch.tensor(lengths)[:, None]
    with torch.no_grad():
        out = made(x, padding)
        for row, length in enumerate(lengths):
            for t in range(T):
                cells = made.layer_norm(x[row, :length, t]) if normalize_before else x[row, :length, t]
                features = []
                for feature in range(C):
                    values = cells[:, feature]
                    if kind == "max":
                        features.append(values.max())
                    else:
                        weights = (cells @ made.projection.weight[feature]).softmax(0)
                        features.append(sum(w * v for w, v in zip(weights, values, strict=True)))
                expected = torch.stack(features)
                expected = expected if normalize_before else made.layer_norm(expected)
                torch.testing.assert_close(out[row, t], expected)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12),
    cells=st.integers(1, 200),
)
def test_parts_cover_a_batch_and_none_is_too_large(lengths: list[tuple[int, int]], cells: int) -> None:
    parts = parts_of_batch(*zip(*lengths, strict=True), cells)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(len(lengths)))
    for part in parts:
        rows = lengths[part]
        area = len(rows) * max(s for s, _ in rows) * max(t for _, t in rows)
        assert len(rows) == 1 or area <= cells
