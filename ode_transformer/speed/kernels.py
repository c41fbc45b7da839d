"""Which kernels of our own a GPU runs in place of PyTorch's formulas, and how they are launched.

A kernel is written in Triton, which comes with PyTorch for CUDA, and stands in a file of its own, which is imported
only where it is used. Beside it stands the formula that it replaces.
"""

import os
from importlib import import_module
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


def launch(kernel: str, grid: tuple[int, ...], moved: int, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel.

    :param kernel: its file in this folder and its name, such as ``loss_kernels.forward``
    :param grid: programs along each axis
    :param moved: bytes that it reads and writes, which ``benchmarks/launches.py`` counts where there is no GPU
    """
    if arguments[0].device.type != "meta":
        file, _, name = kernel.partition(".")
        getattr(import_module(f"{__package__}.{file}"), name)[grid](*arguments, **constants)


def kept_numbers(probability: float) -> tuple[int, float]:
    """Return the least of the random numbers of 32 bits, with a sign, that keeps an element, and the factor of it."""
    return min(round(probability * 2**32) - 2**31, 2**31 - 1), 1 / (1 - probability)


def power_of_2(number: int) -> int:
    """Return the least power of 2 that is not below a number."""
    return 1 << (number - 1).bit_length()


def bytes_of(*tensors: torch.Tensor) -> int:
    """Return the bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)
