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
from functools import partial
from statistics import median
from types import SimpleNamespace
from unittest.mock import patch

import torch
from fairseq.optim import OPTIMIZER_REGISTRY
from launches import build
from systems import SIZES
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ode_transformer.nn import AttentionChoice, FixedStep, MultiheadAttention, attention_mask
from ode_transformer.nn.dropout import Dropout
from ode_transformer.speed import attention, search_attention, sublayers
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
    """Return a table of forward and backward passes by formula and by kernels, of 4,096 positions in half precision."""
    is_gpu = args.device == "cuda"
    positions, words, dim, inner = (4096, 34040, 512, 2048) if is_gpu else (2, 4500, 16, 32)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=args.device, dtype=torch.float16, requires_grad=True)

    logits, target = random(positions, words), torch.randint(2, words, (positions,), device=args.device)
    bias, u, y, inner_bias, z = (
        random(dim),
        random(positions, dim),
        random(positions, dim),
        random(inner),
        random(positions, inner),
    )
    norm, dropout, seed = (
        nn.LayerNorm(dim).to(u),
        Dropout(0.1).train(),
        torch.ones(1, dtype=torch.int64, device=args.device),
    )

    def loss() -> Tensor:
        return label_smoothed_cross_entropy(logits.clone(), target, 1, 0.1)[0].sum()

    def join_by_formula() -> Tensor:
        increment = dropout(u + bias)
        return torch.stack((increment, norm(y + increment)))

    def join_by_kernels() -> Tensor:
        return torch.stack(sublayers.add_dropped(u, bias, None, y, norm, seed, 0.1))

    x = random(max(1, positions // 25), 25 if is_gpu else 2, dim)
    choice = AttentionChoice(max_relative_positions=20)
    module = MultiheadAttention(dim, 8 if is_gpu else 2, 0.1, choice).to(x).train()
    mask = attention_mask(x.size(1), x.size(1), x.device, choice=choice, dtype=x.dtype)

    # What is computed, by formula and by kernels; numbers that have to move once at least
    pairs: list[tuple[str, Callable[[], Tensor], Callable[[], Tensor], int]] = [
        ("loss, and a copy", loss, loss, 5 * logits.numel()),
        ("dropout, sum, normalisation, and a copy", join_by_formula, join_by_kernels, 14 * u.numel()),
        (
            "bias, ReLU, dropout",
            lambda: dropout(torch.relu(z + inner_bias)),
            lambda: sublayers.activate(z, inner_bias, seed, 0.1),
            5 * z.numel(),
        ),
        (
            "self-attention with its maps",
            lambda: module(x, mask),
            lambda: attention.attend(module, x, mask),
            30 * x.numel(),
        ),
    ]
    rows = []
    for name, by_formula, by_kernels, numbers in pairs:
        for way, function in (("formula", by_formula), ("kernels", by_kernels)):
            with patch("ode_transformer.speed.kernels.is_used", lambda *_, way=way: way == "kernels"):
                result = function()
                gradient, leaves = torch.ones_like(result), [logits, bias, u, y, inner_bias, z, x]

                def compute(function=function, gradient=gradient, leaves=leaves) -> None:  # type: ignore[no-untyped-def]
                    torch.autograd.grad(function(), leaves, gradient, allow_unused=True)

                seconds = seconds_of(compute, args.repetitions, args.device)
            speed = 2 * numbers / seconds / 1e12
            rows.append([f"{name}: {way}", f"{1e6 * seconds:.0f}", f"{speed:.2f}"])
    size = 60_000_000 if is_gpu else 2_000
    parameter = torch.randn(size, device=args.device, dtype=torch.float16).requires_grad_()
    optimizer = OPTIMIZER_REGISTRY["fused_adam"](
        SimpleNamespace(lr=[1e-3], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.0), [parameter]
    )
    for way in ("formula", "kernels"):

        def update() -> None:
            parameter.grad = optimizer._gradients.parts[0]
            optimizer.step(scale=2.0)

        with patch("ode_transformer.speed.kernels.is_used", lambda *_, way=way: way == "kernels"):
            seconds = seconds_of(update, args.repetitions, args.device)
        rows.append([f"Adam: {way}", f"{1e6 * seconds:.0f}", f"{28 * size / seconds / 1e12:.2f}"])
    hypotheses, room, heads, width = (656, 32, 8, 64) if is_gpu else (3, 4, 2, 8)  # of a position of search
    step = FixedStep(hypotheses, room, torch.device(args.device))
    step.position.fill_(room - 1)
    step.table.random_(hypotheses)
    with torch.no_grad():
        projected, memory = random(hypotheses, 1, 3 * heads * width), random(room, 2, hypotheses, heads, width) * 1
        for way, attend in (
            ("formula", search_attention.attend_by_formula),
            ("kernels", search_attention.attend),
        ):
            call = partial(attend, projected, memory, step, random(41, width))
            seconds = seconds_of(call, args.repetitions, args.device)
            rows.append(
                [f"attention of a search: {way}", f"{1e6 * seconds:.0f}", f"{2 * memory.numel() / seconds / 1e12:.2f}"]
            )
    return markdown_table(
        ["both passes, an update, or a step of search", "µs", "TB/s of the least that has to move"], rows
    )


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
