"""Registers and spilled bytes of our kernels, compiled for Hopper without a GPU: ``python benchmarks/hopper.py``."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

from ode_transformer.speed import loss_kernels, search_attention, search_kernels
from ode_transformer.speed.losses import BLOCK, WARPS

HALF, FLOAT, NUMBERS = "*fp16", "*fp32", "*i64"
_LOSS = {"padding": "i32", "own": "fp32", "uniform": "fp32"}
# Kernel, types of its arguments, constants, warps
KERNELS: list[tuple[Any, dict[str, str], dict[str, int], int]] = [
    (
        loss_kernels.forward,
        {"z": HALF, "target": NUMBERS, "loss": FLOAT, "nll": FLOAT, "log_sum": FLOAT} | _LOSS,
        {"V": 34040, "BLOCK": BLOCK},
        WARPS,
    ),
    (
        loss_kernels.backward,
        {"z": HALF, "target": NUMBERS, "log_sum": FLOAT, "factor": FLOAT, "stride": "i32"} | _LOSS,
        {"V": 34040, "BLOCK": BLOCK},
        WARPS,
    ),
    (
        search_kernels.attend,
        {**dict.fromkeys(("projected", "memory"), HALF), "table": NUMBERS, "position": NUMBERS}
        | {"relative": HALF, "out": HALF, "scale": "fp32"},
        {"R": 656, "H": 8, "D": 64, "L": 64, "T": 64, "CLIP": 20, "WIDTH": 64, "BLOCK": search_attention.BLOCK},
        search_attention.WARPS,
    ),
]


def resources(kernel: Any, types: dict[str, str], constants: dict[str, int], warps: int) -> dict[str, int]:
    """Return what a program of a kernel takes of a multiprocessor: REG registers a thread, STACK and LOCAL bytes."""
    signature = types | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature=signature, constexprs=constants)
    compiled = compile_kernel(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    tool = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        listing = subprocess.check_output([tool, "--dump-resource-usage", file.name], text=True)
    pairs = (word.split(":") for word in listing.splitlines()[-1].split() if word.count(":") == 1)
    return {name: int(number) for name, number in pairs if number.isdigit()}


if __name__ == "__main__":
    for entry in KERNELS:
        print(entry[0].__name__, resources(*entry))
