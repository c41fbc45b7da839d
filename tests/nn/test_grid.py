"""From two sequences to a grid, attention over its lines, and back to one sequence."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.nn import (
    AttentionChoice,
    MultiheadAttention,
    Reduction,
    SourceAxisAttention,
    attention_mask,
    joint_representation,
    parts_of_batch,
)

B, S, T, C, HEADS, CLIP = 2, 4, 3, 6, 2, 2
AXES = {"target": MultiheadAttention, "source": SourceAxisAttention}


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def perturbed(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(1)
    for parameter in module.double().parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def test_each_cell_is_the_sum_or_the_pair_of_its_two_positions() -> None:
    source, target = tensor(B, S, C), tensor(B, T, C, seed=1)
    added, paired = (joint_representation(source, target, how) for how in ("add", "concat"))
    assert (added.shape, paired.shape) == ((B, S, T, C), (B, S, T, 2 * C))
    for s in range(S):
        for t in range(T):
            assert torch.equal(added[:, s, t], source[:, s] + target[:, t])
            assert torch.equal(paired[:, s, t], torch.cat([source[:, s], target[:, t]], dim=-1))


@pytest.mark.parametrize(("clip", "values"), [(0, False), (CLIP, False), (CLIP, True)])
@pytest.mark.parametrize("axis", AXES)
def test_it_is_attention_over_each_line(axis: str, clip: int, values: bool) -> None:
    choice = AttentionChoice(clip, values)
    attention, x = perturbed(AXES[axis](C, HEADS, choice=choice)), tensor(B, S, T, C)
    plain = MultiheadAttention(C, HEADS, choice=choice).double()
    plain.load_state_dict(attention.state_dict())
    length = T if axis == "target" else S
    padding = torch.arange(length) >= torch.tensor([[length], [length - 1]])
    for causal, padded in ((False, False), (True, False), (False, True)):
        along = padding[:, None] if padded else None
        with torch.no_grad():
            made = attention(x, attention_mask(length, length, x.device, along, causal, choice))
            made, lines = (y if axis == "target" else y.transpose(1, 2) for y in (made, x))
            mask = attention_mask(length, length, x.device, padding if padded else None, causal, choice)
            for number in range(lines.size(1)):
                torch.testing.assert_close(made[:, number], plain(lines[:, number], mask))


@pytest.mark.parametrize("axis", AXES)
def test_dropped_weights_are_the_same_in_all_lines(axis: str) -> None:
    attention = perturbed(AXES[axis](C, HEADS, 0.5, shared_noise=(1,)))
    # Equal cells: every line has the same weights before they are dropped, and reads the same if the noise is shared.
    x = tensor(B, 1, 1, C).expand(B, S, T, C)
    mask = attention_mask(*(2 * [T if axis == "target" else S]), x.device)
    made = attention(x, mask)
    torch.testing.assert_close(made, made.narrow(1 if axis == "target" else 2, 0, 1).expand_as(made))
    assert not torch.allclose(made, attention.eval()(x, mask))
    apart = perturbed(AXES[axis](C, HEADS, 0.5))(x, mask)
    assert not torch.allclose(apart, apart.narrow(1 if axis == "target" else 2, 0, 1).expand_as(apart))


@pytest.mark.parametrize("normalize_before", [True, False])
@pytest.mark.parametrize("kind", ["softmax", "max"])
def test_reduction_by_loops(kind: str, normalize_before: bool) -> None:
    made, x = perturbed(Reduction(C, kind, normalize_before)), tensor(B, S, T, C)
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
