"""Attention of searches by kernels and by formulas."""

import torch
from torch import Tensor

ROWS, HEADS, LENGTH = 5, 2, 50
# Type, width of a head, clip of relative positions, room
CASES = [
    (torch.float32, 16, 3, 50),
    (torch.float32, 12, 0, 16),
    (torch.float16, 16, 3, 48),
    (torch.bfloat16, 8, 60, 40),
]


def outcome(dtype: torch.dtype, width: int, clip: int, room: int, by_kernel: bool, device: str = "cpu") -> list[Tensor]:
    """Return what the first, a later and the last step attend to, and the memory; rows go on with other rows' pasts."""
    from ode_transformer.nn import FixedStep
    from ode_transformer.speed import search_attention

    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    attend = search_attention.attend if by_kernel else search_attention.attend_by_formula
    step = FixedStep(ROWS, LENGTH, torch.device(device), attend)
    step.room, step.table = room, torch.randint(ROWS, (ROWS, LENGTH), generator=generator).to(device)
    memory, relative = draw(LENGTH, 2, ROWS, HEADS, width), draw(2 * clip + 1, width) if clip else None
    outputs = []
    for position in (0, room // 2, room - 1):
        step.position.fill_(position)
        outputs.append(attend(draw(ROWS, 1, 3 * HEADS * width), memory, step, relative).cpu())
    return [*outputs, memory.cpu()]
