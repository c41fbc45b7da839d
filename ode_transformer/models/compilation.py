"""Compilation of sub-layers by ``torch.compile`` for training (``--compile``)."""

from __future__ import annotations

import shutil

import torch
from torch import nn
from torch.utils._triton import has_triton

from ode_transformer.nn import SubLayer
from ode_transformer.support.errors import OptionError

_BACKEND = "inductor"
_VARIANTS = 64  # of a sub-layer's code: its kind, masks, training or evaluation; PyTorch gives up compiling after 8


def compile_sublayers(layers: nn.Module) -> None:
    """Let the first forward pass compile each sub-layer; names of parameters stay as they are.

    :param layers: module that contains the layers
    :raises OptionError: there is no compiler
    """
    if not _has_compiler():
        needed = "Triton" if torch.cuda.is_available() else "a C++ compiler (g++, clang++)"
        raise OptionError(f"--compile: torch.compile needs {needed}, which was not found; install it, or omit the flag")
    torch._dynamo.config.recompile_limit = max(_VARIANTS, torch._dynamo.config.recompile_limit)
    for module in layers.modules():
        if isinstance(module, SubLayer):
            module.compile(backend=_BACKEND, dynamic=True)  # lengths of batches differ


def _has_compiler() -> bool:
    return has_triton() if torch.cuda.is_available() else any(map(shutil.which, ("g++", "clang++", "c++")))
