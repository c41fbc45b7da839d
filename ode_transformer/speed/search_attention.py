"""Attention of a search step to keys and values that stay where they were written.

A beam search that goes on with other hypotheses copies no cache: a table says in which row of the memory each
hypothesis has its past. With p the present position, and row table[r, t] for every position t < p of row r,

    e_t = q · (k_t + A[o_t]) / √D,   o_t = clip(t − p, −c, c) + c        as in ``relative_position``
    z   = Σ softmax(e)_t v_t                                            over t ≤ p

Axes: R rows, H heads, D width of a head, L positions for which there is room, T those that a step reads.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ode_transformer.nn.attention_scores import AttentionChoice, softmax
from ode_transformer.nn.decoding_step import FixedStep
from ode_transformer.speed import kernels

BLOCK = 32  # positions that a program reads at a time
WARPS = 4

Attend = Callable[[Tensor, Tensor, FixedStep, Tensor | None], Tensor]


def choose(device: torch.device) -> Attend | None:
    """Return the attention of a search on a device; None where its caches are reordered."""
    return attend if kernels.is_used("search", device) else None


def attend(projected: Tensor, memory: Tensor, step: FixedStep, relative: Tensor | None) -> Tensor:
    """Write the keys and values of the present position, and attend to all up to it.

    :param projected: queries, keys and values, [R, 1, 3 · H · D]
    :param memory: keys and values of all positions, [L, 2, R, H, D]
    :param step: its table, position and room T
    :param relative: A, [2c + 1, D]; None without relative positions
    :returns: [R, 1, H · D]
    """
    length, _, rows, heads, width = memory.shape
    out = projected.new_empty(rows, 1, heads * width)
    size = memory.element_size()
    moved = 2 * step.room * out.numel() * size + rows * step.room * 8 + 6 * out.numel() * size
    table_a = projected if relative is None else relative.to(projected.dtype)
    constants = {"R": rows, "H": heads, "D": width, "L": length, "T": step.room}
    constants |= {"BLOCK": min(BLOCK, kernels.power_of_2(step.room)), "WIDTH": kernels.power_of_2(width)}
    constants |= {"CLIP": 0 if relative is None else len(relative) // 2}
    arguments = projected.contiguous(), memory, step.table, step.position, table_a.contiguous(), out, width**-0.5
    kernels.launch("search_kernels.attend", (rows, heads), moved, *arguments, **constants, num_warps=WARPS)
    return out


def attend_by_formula(projected: Tensor, memory: Tensor, step: FixedStep, relative: Tensor | None) -> Tensor:
    """Compute :func:`attend` by the operators with which a step attends to a cache that is reordered."""
    _, _, rows, heads, width = memory.shape
    query, *added = projected.view(rows, 3, heads, width).unbind(1)  # [R, H, D] each
    memory.index_copy_(0, step.position, torch.stack(added)[None])
    own = torch.arange(rows, device=memory.device)[:, None]
    sources = step.table.index_copy(1, step.position, own)[:, : step.room].t()  # [T, R]
    index = sources[:, None, :, None, None].expand(-1, *memory.shape[1:])
    past = memory[: step.room].gather(2, index).view(step.room, 2, rows * heads, width)
    query = query.reshape(-1, 1, width)  # [R · H, 1, D]
    key, value = past[:, 0].permute(1, 2, 0), past[:, 1].transpose(0, 1)  # [R · H, D, T], [R · H, T, D]
    clip = 0 if relative is None else len(relative) // 2
    mask = step.mask(AttentionChoice(max_relative_positions=clip))
    assert mask.bias is not None
    bias, scale, factor = mask.bias.to(query.dtype), width**-0.5, 1.0
    if relative is not None:
        assert mask.offsets is not None
        products = query @ relative.t().to(query.dtype)  # [R · H, 1, 2c + 1]
        bias, factor = products.gather(-1, mask.offsets.expand(rows * heads, -1, -1)) + bias, scale
    probabilities = softmax(torch.baddbmm(bias, query, key, beta=factor, alpha=scale))
    return torch.bmm(probabilities, value).view(rows, 1, -1)
