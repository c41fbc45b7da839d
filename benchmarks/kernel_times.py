"""What a GPU's time goes to: passes of systems by the profiler, and our kernels beside PyTorch's operators.

    python benchmarks/kernel_times.py passes fairseq-6 euler-6 --sentences 163 665
    python benchmarks/kernel_times.py kernels

``passes`` says how much of the time of a forward and a backward pass the GPU computes: where it is much less than all,
the program waits for Python. ``kernels`` says how many bytes a second each kernel moves; 3 TB/s of an H200 are good.
On a CPU they need TRITON_INTERPRET=1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from unittest.mock import patch

import torch
from launches import build
from systems import SIZES
from torch.profiler import ProfilerActivity, profile

from ode_transformer.speed.losses import label_smoothed_cross_entropy
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.tables import markdown_table


def seconds_of(compute: Callable[[], object], repetitions: int, device: str) -> float:
    """Return the median seconds of a call, after three others."""
    times = []
    for _ in range(3 + repetitions):
        begin = time.perf_counter()
        compute()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return median(times[3:])


def passes(args: argparse.Namespace) -> str:
    """Return a table of the times of both passes, and of the kernels within them."""
    activity = ProfilerActivity.CUDA if args.device == "cuda" else ProfilerActivity.CPU
    rows = []
    for name in args.systems:
        for sentences in args.sentences:
            system = build(name, sentences, args.size, args.device, "fp16" if args.device == "cuda" else "fp32")
            system.model.train()

            def compute(system=system) -> None:  # type: ignore[no-untyped-def]
                (system.loss() / system.batch["ntokens"]).backward()

            seconds = seconds_of(compute, args.repetitions, args.device)
            with profile(activities=[activity]) as profiler:
                compute()
            events = profiler.key_averages()
            kernels = sum(e.self_device_time_total if args.device == "cuda" else e.self_cpu_time_total for e in events)
            launches = sum(e.count for e in events if args.device == "cpu" or e.device_type.name == "CUDA")
            rows.append([name, f"{sentences}", f"{1000 * seconds:.1f}", f"{kernels / 1000:.1f}", f"{launches:,}"])
            del system
    return markdown_table(["system", "sentences", "ms of both passes", "ms of kernels", "launches"], rows)


def kernels(args: argparse.Namespace) -> str:
    """Return a table of the loss and its gradient by formula and by kernels, [4096, 34040] in half precision."""
    positions, words = (4096, 34040) if args.device == "cuda" else (2, 4500)
    logits = torch.randn(positions, words, device=args.device, dtype=torch.float16)
    target = torch.randint(2, words, (positions,), device=args.device)
    moved = 4 * logits.numel() * logits.element_size()  # read; read, written; and the copy
    rows = []
    for by_kernels in (False, True):
        with patch("ode_transformer.speed.kernels.is_used", lambda *_, used=by_kernels: used):

            def compute() -> None:
                z = logits.clone().requires_grad_()
                label_smoothed_cross_entropy(z, target, 1, 0.1)[0].sum().backward()

            seconds = seconds_of(compute, args.repetitions, args.device)
        name = "loss, kernels" if by_kernels else "loss, formula"
        rows.append([name, f"{1e6 * seconds:.0f}", f"{moved / seconds / 1e12:.2f}"])
    return markdown_table(["both passes and a copy", "µs", "TB/s of the least that has to move"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("passes", "kernels"))
    parser.add_argument("systems", nargs="*", default=["fairseq-6"], metavar="NAME")
    parser.add_argument("--sentences", nargs="+", type=positive_int, default=[163, 665], metavar="N")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--repetitions", type=positive_int, default=7, metavar="N")
    args = parser.parse_args(argv)
    print(passes(args) if args.what == "passes" else kernels(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
