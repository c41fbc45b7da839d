"""Attention along one axis of a grid, against loops over its lines and pairs of cells."""

import pytest
import torch

from ode_transformer.nn import AttentionChoice, SeparableAttention, attention_mask

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


def naive(attention: SeparableAttention, x: torch.Tensor, allowed, clip: int = 0) -> torch.Tensor:
    """Eq. 5 by loops; ``allowed(batch, i, j)``: may position i of the axis look at position j?"""
    out = torch.zeros_like(x)
    along = x if attention.axis == "target" else x.transpose(1, 2)
    result = out if attention.axis == "target" else out.transpose(1, 2)
    for row in range(len(x)):
        for line in range(along.size(1)):
            cells = along[row, line]
            query, key, value = attention.q_proj(cells), attention.k_proj(cells), attention.v_proj(cells)
            for i in range(len(cells)):
                read = []
                for part in torch.arange(DIM).chunk(HEADS):
                    keys = [j for j in range(len(cells)) if allowed(row, i, j)]
                    scores, values = [], []
                    for j in keys:
                        offset = max(-clip, min(clip, j - i)) + clip
                        position = attention.relative_keys.weight[offset] if clip else 0
                        scores.append(query[i, part] @ (key[j, part] + position) / len(part) ** 0.5)
                        shift = attention.relative_values.weight[offset] if attention.relative_values else 0
                        values.append(value[j, part] + shift)
                    weights = torch.stack(scores).softmax(0)
                    read.append(sum(w * v for w, v in zip(weights, values, strict=True)))
                result[row, line, i] = attention.out_proj(torch.cat(read))
    return out


@pytest.mark.parametrize(("clip", "values"), [(0, False), (CLIP, False), (CLIP, True)])
@pytest.mark.parametrize("axis", AXES)
def test_it_is_attention_over_each_line(axis: str, clip: int, values: bool) -> None:
    attention, x = separable(axis, choice=AttentionChoice(clip, values)), grid(2, S, T)
    length = T if axis == "target" else S
    padding = torch.arange(length) >= torch.tensor([[length], [length - 1]])
    with torch.no_grad():
        plain = attention(x, attention_mask(length, length, x.device, choice=AttentionChoice(clip)))
        causal = attention(x, attention_mask(length, length, x.device, causal=True, choice=AttentionChoice(clip)))
        padded = attention(x, attention_mask(length, length, x.device, padding[:, None], choice=AttentionChoice(clip)))
        torch.testing.assert_close(plain, naive(attention, x, lambda row, i, j: True, clip))
        torch.testing.assert_close(causal, naive(attention, x, lambda row, i, j: j <= i, clip))
        torch.testing.assert_close(padded, naive(attention, x, lambda row, i, j: not padding[row, j], clip))


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


@pytest.mark.parametrize("axis", AXES)
def test_gradients(axis: str) -> None:
    attention = separable(axis, choice=AttentionChoice(CLIP))
    mask = attention_mask(3, 3, torch.device("cpu"), causal=True, choice=AttentionChoice(CLIP))
    assert torch.autograd.gradcheck(lambda x: attention(x, mask), grid(1, 3, 3).requires_grad_())
