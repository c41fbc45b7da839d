"""Time of a training step through one feed-forward sub-layer, compiled (``--compile``) and not.

python benchmarks/compilation.py            # sizes tiny and base, one thread, CPU seconds of the process
"""

from __future__ import annotations

import copy
import time
from statistics import median

import torch
from systems import SIZES
from torch._inductor.utils import fresh_cache

from ode_transformer.nn import FeedForward, SubLayer, SubLayerKind

ROUNDS = 40


def step_seconds(sublayer: SubLayer, x: torch.Tensor) -> float:
    """Return the CPU seconds of a forward and backward pass."""
    begin = time.process_time()
    sublayer(x).sum().backward()
    return time.process_time() - begin


def measure(dim: int, inner_dim: int) -> tuple[float, float, float]:
    """Return the seconds of the first compiled step, and the median CPU seconds of plain and compiled steps in turn."""
    plain = SubLayer(SubLayerKind.FEED_FORWARD, FeedForward(dim, inner_dim, torch.relu, 0.1), dim, 0.1)
    compiled = copy.deepcopy(plain)
    compiled.compile(dynamic=True)
    torch.compiler.reset()
    x = torch.randn(24, 25, dim, requires_grad=True)
    begin = time.perf_counter()  # compilers are processes of their own
    with fresh_cache():
        step_seconds(compiled, x)
    start = time.perf_counter() - begin
    rounds = [(step_seconds(plain, x), step_seconds(compiled, x)) for _ in range(ROUNDS)]
    plain_seconds, compiled_seconds = (median(column) for column in zip(*rounds, strict=True))
    return start, plain_seconds, compiled_seconds


if __name__ == "__main__":
    torch.set_num_threads(1)
    for size in ("tiny", "base"):
        start, plain, compiled = measure(SIZES[size]["dim"], SIZES[size]["ffn"])
        print(
            f"{size}: first compiled step {start:.1f} s, plain {1e3 * plain:.1f} ms, compiled {1e3 * compiled:.1f} ms"
        )
