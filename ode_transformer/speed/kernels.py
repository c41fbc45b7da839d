"""Which kernels of our own a GPU runs in place of PyTorch's formulas, and how they are launched.

A kernel is written in Triton, which comes with PyTorch for CUDA, and stands in a file of its own, which is imported
only where it is used. Beside it stands the formula that it replaces.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

# Name → versions of PyTorch and compute capabilities with which ``tests/gpu`` has passed. No GPU has run one yet.
TRIED: dict[str, set[tuple[str, tuple[int, int]]]] = {
    "loss": set(),
    "sublayers": set(),
    "adam": set(),
    "attention": set(),
    "search": set(),
    "compile": set(),
}
# Further names for this process, which ``benchmarks/on_a_gpu.sh`` sets in order to try them.
SETTING = "ODE_TRANSFORMER_TRY"


def is_used(name: str, device: torch.device) -> bool:
    """Tell whether a GPU runs a kernel in place of its formula."""
    if device.type == "cpu":
        return False
    if name in os.environ.get(SETTING, "").split():
        return True
    if device.type != "cuda" or not TRIED[name]:
        return False
    return (torch.__version__.split("+")[0], torch.cuda.get_device_capability(device)) in TRIED[name]


def launch(kernel: Callable[[], Any], grid: tuple[int, ...], moved: int, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel.

    :param kernel: imports and returns it
    :param grid: programs along each axis
    :param moved: bytes that it reads and writes, which ``benchmarks/launches.py`` counts where there is no GPU
    """
    if arguments[0].device.type != "meta":
        kernel()[grid](*arguments, **constants)


def bytes_of(*tensors: torch.Tensor) -> int:
    """Return the bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)
