"""Attention along one axis of a grid, against attention over its lines."""

import pytest
import torch

from ode_transformer.nn import AttentionChoice, MultiheadAttention, SeparableAttention, attention_mask

DIM, HEADS, CLIP = 8, 2, 2
S, T = 4, 5
AXES = ("target", "source")


def grid(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def separable(axis: str, **options: object) -> SeparableAttention:
    torch.manual_seed(1)
    attention = SeparableAttention(axis, DIM, HEADS, **options).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return attention


@pytest.mark.parametrize(("clip", "values"), [(0, False), (CLIP, False), (CLIP, True)])
@pytest.mark.parametrize("axis", AXES)
def test_it_is_attention_over_each_line(axis: str, clip: int, values: bool) -> None:
    choice = AttentionChoice(clip, values)
    attention, x = separable(axis, choice=choice), grid(2, S, T)
    plain = MultiheadAttention(DIM, HEADS, choice=choice).double()
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
    attention = separable(axis, dropout=0.5, shared_noise=True).train()
    # Equal cells: every line has the same weights before they are dropped, and reads the same if the noise is shared.
    x = grid(2, 1, 1).expand(2, S, T, DIM)
    mask = attention_mask(*(2 * [T if axis == "target" else S]), x.device)
    made = attention(x, mask)
    torch.testing.assert_close(made, made.narrow(1 if axis == "target" else 2, 0, 1).expand_as(made))
    assert not torch.allclose(made, attention.eval()(x, mask))
    apart = separable(axis, dropout=0.5).train()(x, mask)
    assert not torch.allclose(apart, apart.narrow(1 if axis == "target" else 2, 0, 1).expand_as(apart))
