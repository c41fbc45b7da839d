"""Attention with relative positions against loops over positions."""

from dataclasses import replace

import pytest
import torch
from recordings import read_recording

from ode_transformer.nn import AttentionChoice, MultiheadAttention, attention_mask
from ode_transformer.nn.attention_scores import AttentionMask
from ode_transformer.nn.relative_position import one_hot_offsets

DIM, HEADS, CLIP = 8, 2, 2


def naive(attention: MultiheadAttention, x: torch.Tensor, lengths: list[int], causal: bool, clip: int) -> torch.Tensor:
    """Shaw et al. (2018), one pair of positions at a time; x is [B, T, C]."""
    out = torch.zeros_like(x)
    width = DIM // HEADS
    for b, length in enumerate(lengths):
        query, key, value = attention.in_proj(x[b]).chunk(3, dim=-1)
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            for i in range(x.size(1)):
                seen = range(min(i + 1, length) if causal else length)
                scores = []
                for j in seen:
                    vector = key[j, part]
                    if clip:
                        vector = vector + attention.relative_keys.weight[max(-clip, min(clip, j - i)) + clip]
                    scores.append(query[i, part] @ vector / width**0.5)
                shares = torch.stack(scores).softmax(0)
                for share, j in zip(shares, seen, strict=True):
                    read = value[j, part]
                    if attention.relative_values is not None:
                        read = read + attention.relative_values.weight[max(-clip, min(clip, j - i)) + clip]
                    out[b, i, part] += share * read
    return attention.out_proj(out)


def padding(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths))[None, :] >= torch.tensor(lengths)[:, None]


def with_one_hot_offsets(mask: AttentionMask, clip: int) -> AttentionMask:
    """As on a GPU in training."""
    return mask if mask.offsets is None else replace(mask, offsets=one_hot_offsets(mask.offsets, clip, torch.float64))


@pytest.mark.parametrize("clip", [0, CLIP, 20])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("values", [False, True])
def test_equals_the_loop_over_positions(clip: int, causal: bool, explicit: bool, values: bool) -> None:
    torch.manual_seed(0)
    values = values and clip > 0
    attention = MultiheadAttention(DIM, HEADS, choice=AttentionChoice(clip, values)).double()
    lengths = [5, 3, 1]
    x = torch.randn(3, 5, DIM, dtype=torch.float64)
    mask = attention_mask(5, 5, x.device, None if causal else padding(lengths), causal, AttentionChoice(clip))
    expected = naive(attention, x, [5, 5, 5] if causal else lengths, causal, clip)
    for variant in (mask, with_one_hot_offsets(mask, clip)):
        weights: list[torch.Tensor] = []
        torch.testing.assert_close(attention(x, variant, weights=weights if explicit else None), expected)
    if explicit:
        torch.testing.assert_close(weights[0].sum(-1), torch.ones(3, HEADS, 5, dtype=torch.float64))


def test_gradcheck_with_relative_values() -> None:
    torch.manual_seed(1)
    attention = MultiheadAttention(DIM, HEADS, choice=AttentionChoice(CLIP, True)).double()
    x = torch.randn(2, 4, DIM, dtype=torch.float64, requires_grad=True)
    mask = attention_mask(4, 4, x.device, padding([4, 2]), True, AttentionChoice(CLIP))
    tables = attention.relative_keys.weight, attention.relative_values.weight
    for variant in (mask, with_one_hot_offsets(mask, CLIP)):
        assert torch.autograd.gradcheck(lambda x, *_, mask=variant: attention(x, mask), (x, *tables))


def test_a_row_that_may_see_nothing_is_finite() -> None:
    for clip in (0, CLIP):
        attention = MultiheadAttention(DIM, HEADS, choice=AttentionChoice(clip))
        x = torch.randn(1, 3, DIM)
        blocked = torch.ones(1, 3, dtype=torch.bool)
        mask = attention_mask(3, 3, x.device, blocked, False, AttentionChoice(clip))
        for weights in (None, []):
            assert attention(x, mask, weights=weights).isfinite().all()


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the numbers of the largest tensor that an operator returns in memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        memory = {x.untyped_storage().data_ptr() for x in tensors}
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in memory:
                self.largest = max(self.largest, tensor.numel())
        return out


@pytest.mark.parametrize("values", [False, True])
def test_memory_stays_far_below_a_vector_for_each_pair_of_positions(values: bool) -> None:
    """The bias is T² for each head; a (T, T, head_dim) tensor would be head_dim times that."""
    length, dim = 256, 64
    attention = MultiheadAttention(dim, 1, choice=AttentionChoice(8, values))
    x = torch.randn(1, length, dim)
    with LargestTensor() as watch:
        attention(x, attention_mask(length, length, x.device, None, True, AttentionChoice(8))).sum().backward()
    assert watch.largest <= max(length * length, dim * dim)


@pytest.mark.parametrize("side", ["right", "left", "nomask"])
def test_parity_with_the_released_module(side: str) -> None:
    recorded = read_recording("rpr_attention_encoder__konly")
    attention = MultiheadAttention(16, 4, choice=AttentionChoice(3)).double()
    with torch.no_grad():
        for kind in ("weight", "bias"):
            getattr(attention.in_proj, kind).copy_(recorded[f"sd/in_proj_{kind}"])
            getattr(attention.out_proj, kind).copy_(recorded[f"sd/out_proj.{kind}"])
        attention.relative_keys.weight.copy_(recorded["sd/relative_position_keys"])
    x = recorded["x"].transpose(0, 1).requires_grad_()
    padding_mask = recorded.get(f"{side}/key_padding_mask")
    mask = attention_mask(11, 11, x.device, padding_mask, False, AttentionChoice(3))
    out = attention(x, mask)
    valid = torch.ones(3, 11, 1) if padding_mask is None else (~padding_mask).unsqueeze(-1).double()
    torch.testing.assert_close(out * valid, recorded[f"{side}/out"].transpose(0, 1) * valid, rtol=0, atol=1e-12)
    weights: list[torch.Tensor] = []
    attention(x, mask, weights=weights)
    mean = weights[0].mean(dim=1)
    torch.testing.assert_close(mean * valid, recorded[f"{side}/attn_weights"] * valid, rtol=0, atol=1e-12)
    seed = recorded[f"{side}/grad_weight"].transpose(0, 1)
    table, grad_x = torch.autograd.grad((out * seed).sum(), (attention.relative_keys.weight, x))
    prefix = f"{side}/grad_weighted"
    torch.testing.assert_close(table, recorded[f"{prefix}/relative_position_keys"], rtol=0, atol=1e-10)
    torch.testing.assert_close(grad_x.transpose(0, 1), recorded[f"{prefix}/x"], rtol=0, atol=1e-10)
