"""Several linear maps of one input as a single product of matrices.

    [y_1; …; y_n] = [W_1; …; W_n] x + [b_1; …; b_n]

The maps keep their own parameters and names. Without gradients their numbers lie side by side in memory, as those of
PyTorch's recurrent networks do, so that the joined matrix is a view and no call copies it. Training copies them, once
for all evaluations of a step: operators of PyTorch take less time on the host than an own gradient would.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ode_transformer.nn.linear import Linear, linear_map

# Joined weight and bias, by the first of the maps; of one step of a scheme.
JoinedParameters = dict[nn.Module, tuple[Tensor, Tensor]]


def joined(parameters: Sequence[Tensor]) -> Tensor:
    """Return parameters [m_i, ..] as one tensor [Σ m_i, ..] without a gradient, a view of them where that can be.

    Parameters that do not lie side by side, as after they were moved or converted, are moved there first.
    """
    if torch.compiler.is_compiling() or not all(isinstance(p, nn.Parameter) for p in parameters):
        return torch.cat([p.detach() for p in parameters])
    place = parameters[0].data_ptr()
    for parameter in parameters:
        if parameter.data_ptr() != place or not parameter.is_contiguous():
            break
        place += parameter.nbytes
    else:
        first = parameters[0].detach()
        if first.untyped_storage().data_ptr() + first.untyped_storage().nbytes() >= place:
            return first.as_strided((sum(map(len, parameters)), *first.shape[1:]), first.stride())
    with torch.inference_mode(False):  # the parameters may be trained later
        whole = torch.cat([p.detach() for p in parameters])
    for parameter, part in zip(parameters, whole.split([len(p) for p in parameters]), strict=True):
        parameter.data = part
    return whole


def project_heads(
    x: Tensor, maps: Sequence[Linear], heads: int, joined_parameters: JoinedParameters | None = None
) -> tuple[Tensor, ...]:
    """Return the maps of ``x``, divided into heads.

    :param x: [.., T, input_dim]
    :param maps: n maps to C channels
    :param heads: H
    :param joined_parameters: of a step that uses the maps several times
    :returns: n tensors [.., H, T, C/H]
    """
    if len(maps) == 1 or not torch.is_grad_enabled():  # each by itself: int8 has maps without a weight
        return tuple(p(x).unflatten(-1, (heads, -1)).transpose(-3, -2) for p in maps)
    parameters = None if joined_parameters is None else joined_parameters.get(maps[0])
    if parameters is None:
        parameters = torch.cat([p.weight for p in maps]), torch.cat([p.bias for p in maps])
    if joined_parameters is not None:
        joined_parameters[maps[0]] = parameters
    y = linear_map(x, *parameters).view(*x.shape[:-1], len(maps), heads, -1)  # [.., T, n, H, C/H]
    y = y.movedim(-3, 0).transpose(-3, -2)  # [n, .., H, T, C/H]
    # On a CPU for products of matrices, which would each copy its part.
    return (y.contiguous() if x.device.type == "cpu" else y).unbind()
