"""Attention along one axis of a grid, against loops over its lines and pairs of cells."""

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


def test_one_attention_along_each_axis_lets_every_cell_reach_every_other() -> None:
    x = grid(1, S, T).requires_grad_()
    y = x
    for axis, length in (("target", T), ("source", S)):
        y = separable(axis)(y, attention_mask(length, length, x.device))
    for s in range(S):
        for t in range(T):
            (gradient,) = torch.autograd.grad(y[0, s, t].sum(), x, retain_graph=True)
            assert (gradient.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("axis", AXES)
def test_one_attention_reaches_its_line_only(axis: str) -> None:
    x = grid(1, S, T).requires_grad_()
    length = T if axis == "target" else S
    y = separable(axis)(x, attention_mask(length, length, x.device))
    (gradient,) = torch.autograd.grad(y[0, 1, 2].sum(), x)
    reached = gradient[0].abs().sum(-1) > 0
    line = torch.zeros(S, T, dtype=torch.bool)
    line[1 if axis == "target" else slice(None), 2 if axis == "source" else slice(None)] = True
    assert torch.equal(reached, line)


def test_it_makes_far_fewer_scores_than_attention_over_all_cells() -> None:
    """S²T + ST² in place of S²T², for each head."""
    length = 40
    x, weights = torch.randn(1, length, length, 4), []
    mask = attention_mask(length, length, x.device)
    with torch.no_grad():
        for axis in AXES:
            SeparableAttention(axis, 4, 1)(x, mask, report_weights=weights.append)
        separate = sum(w.numel() for w in weights)
        MultiheadAttention(4, 1)(x.flatten(1, 2), mask, report_weights=weights.append)
    assert (separate, weights[-1].numel()) == (128_000, 2_560_000)


@pytest.mark.parametrize("axis", AXES)
def test_reported_weights_are_those_of_the_fast_path(axis: str) -> None:
    attention, x = separable(axis), grid(2, S, T)
    length, lines = (T, S) if axis == "target" else (S, T)
    mask = attention_mask(length, length, x.device, causal=True)
    weights: list[torch.Tensor] = []
    torch.testing.assert_close(attention(x, mask, report_weights=weights.append), attention(x, mask))
    assert weights[0].shape == (2, lines, HEADS, length, length)
    torch.testing.assert_close(weights[0].sum(-1), torch.ones_like(weights[0][..., 0]))


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


def test_an_unknown_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown axis 'depth'; known are target, source"):
        SeparableAttention("depth", DIM, HEADS)


@pytest.mark.parametrize("axis", AXES)
def test_gradients(axis: str) -> None:
    attention = separable(axis, choice=AttentionChoice(CLIP))
    mask = attention_mask(3, 3, torch.device("cpu"), causal=True, choice=AttentionChoice(CLIP))
    assert torch.autograd.gradcheck(lambda x: attention(x, mask), grid(1, 3, 3).requires_grad_())
