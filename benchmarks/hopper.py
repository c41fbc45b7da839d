"""Registers and spilled bytes of our kernels, compiled for Hopper without a GPU: ``python benchmarks/hopper.py``."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

from ode_transformer.speed import (
    adam,
    adam_kernels,
    attention,
    attention_kernels,
    loss_kernels,
    search_attention,
    search_kernels,
    sublayer_kernels,
    sublayers,
)
from ode_transformer.speed.losses import BLOCK, WARPS

HALF, FLOAT, NUMBERS = "*fp16", "*fp32", "*i64"
_LOSS = {"padding": "i32", "own": "fp32", "uniform": "fp32"}
_DRAW, _ROWS = {"lowest": "i32", "scale": "fp32"}, {"ROWS": sublayers.ROWS}
_COLUMNS = {"C": 512, "BLOCK": 512}  # of a row; those of an inner layer are computed in blocks
_INNER = {"C": 2048, "BLOCK": sublayers.BLOCK}
_ATTENTION = dict.fromkeys(("query_stride", "key_stride", "bias_sentence", "bias_query", "bias_key"), "i32")
_ATTENTION |= {"T": "i32", "S": "i32", "lowest": "i32", "factor": "fp32", "scale": "fp32"}
_ATTENTION_READS = {**dict.fromkeys(("q", "k", "v", "table", "bias"), HALF), "seed": NUMBERS}
_LAST = ("weight", "total", "dtotal")  # arguments that are None where no normalisation follows
# Kernel, types of its arguments, constants, warps
KERNELS: list[tuple[Any, dict[str, str], dict[str, Any], int]] = [
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
    (
        adam_kernels.update,
        {"values": FLOAT, "rounded": HALF, "gradients": HALF, "m": FLOAT, "v": FLOAT, "scale": FLOAT, "overflow": FLOAT}
        | dict.fromkeys(("rate", "decay", "keep1", "add1", "keep2", "add2", "eps"), "fp32")
        | {"N": "i32"},
        {"BLOCK": adam.BLOCK},
        adam.WARPS,
    ),
    (
        sublayer_kernels.add_dropped,
        {**dict.fromkeys(("u", "bias", "total", "y", "weight", "shift"), HALF), "seed": NUMBERS}
        | {"new_total": HALF, "x": HALF, "mean": FLOAT, "deviation": FLOAT, **_DRAW, "eps": "fp32"},
        _COLUMNS,
        sublayers.WARPS,
    ),
    (
        sublayer_kernels.add_dropped_backward,
        {**dict.fromkeys(("dnew_total", "dx", "y", "new_total", "weight"), HALF), "seed": NUMBERS}
        | {"mean": FLOAT, "deviation": FLOAT, "du": HALF, "dtotal": HALF, "dy": HALF, "sums": FLOAT}
        | {**_DRAW, "N": "i32"},
        _COLUMNS | _ROWS,
        sublayers.WARPS,
    ),
    (
        sublayer_kernels.activate,
        {"z": HALF, "bias": HALF, "seed": NUMBERS, "h": HALF, **_DRAW},
        _INNER | {"COLUMNS": 2048},
        sublayers.WARPS,
    ),
    (
        sublayer_kernels.activate_backward,
        {"dh": HALF, "h": HALF, "dz": HALF, "sums": FLOAT, "scale": "fp32", "N": "i32"},
        _INNER | _ROWS,
        sublayers.WARPS,
    ),
    (
        sublayer_kernels.add_rows,
        {"sums": FLOAT, "out": HALF, "P": "i32"},
        {"COLUMNS": 1536, "ROWS": 32, "BLOCK": 32},
        sublayers.WARPS,
    ),
]


def resources(kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int) -> dict[str, int]:
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


for room in (32, 128):
    step, warps = attention.STEPS[room]
    sizes = {"H": 8, "D": 64, "CLIP": 20, "QUERIES": step, "KEYS": room, "WIDTH": 64, "OFFSETS": 64}
    KERNELS.append((attention_kernels.forward, {**_ATTENTION_READS, "out": HALF, **_ATTENTION}, sizes, warps))
    written = dict.fromkeys(("dout", "dq", "dk", "dv", "dproducts"), HALF)
    KERNELS.append((attention_kernels.backward, _ATTENTION_READS | written | _ATTENTION, sizes, warps))


def variants() -> Iterator[tuple[Any, dict[str, str], dict[str, Any], int]]:
    """Yield all kernels, those of a layer's end also without what they lack there."""
    for kernel, types, constants, warps in KERNELS:
        yield kernel, types, constants, warps
        if "weight" in types:
            yield kernel, types, constants | {name: None for name in _LAST if name in types}, warps


if __name__ == "__main__":
    for entry in variants():
        print(entry[0].__name__, resources(*entry))
