"""Parameters under the names of earlier versions, which kept the projections of an attention apart.

in_proj = [q_proj; k_proj; v_proj] of self-attention,   kv_proj = [k_proj; v_proj] of cross-attention
"""

import re
from collections.abc import Iterable, MutableMapping

import torch
from torch import Tensor

CROSS_ATTENTION = "encoder_attn"  # name of the sub-layers whose keys and values come from the encoder output
_PROJECTION = re.compile(r"(.*\bfunction\.)([qkv])_proj\.(weight|bias)")


def sources_of_parameters(names: Iterable[str]) -> dict[str, list[str]]:
    """Return for each parameter of today the parameters of an earlier version that it consists of, in their order.

    :param names: names of either version, in the order of the model
    """
    sources: dict[str, list[str]] = {}
    for name in names:
        today = name
        if match := _PROJECTION.fullmatch(name):
            start, letter, kind = match.groups()
            projection = "in"
            if CROSS_ATTENTION in start:
                projection = "q" if letter == "q" else "kv"
            today = f"{start}{projection}_proj.{kind}"
        sources.setdefault(today, []).append(name)
    return sources


def join_projections(parameters: MutableMapping[str, Tensor]) -> None:
    """Give parameters of an earlier version the names and shapes of today, in place and in the order of the model."""
    for name, sources in sources_of_parameters(list(parameters)).items():
        tensors = [parameters.pop(source) for source in sources]
        parameters[name] = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
