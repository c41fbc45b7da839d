"""Linear maps in int8 on a CPU, for decoding.

    W ≈ diag(s) Q,   x ≈ a (R − z):     y = a diag(s) Q (R − z)ᵀ + b

Each row of the weights W has its own step s, computed once. Each input x, the whole batch, has a step a and an offset z
by its smallest and largest number, computed at every call. Products are sums of whole numbers. Attention and all else
stay in float32.
"""

import warnings

import torch
from torch import Tensor, nn

from ode_transformer.nn.linear import Linear

# x uses 7 of 8 bits: the products of two 8-bit numbers overflow on processors without VNNI.
REDUCE_RANGE = True


class Int8Linear(nn.Module):
    """Linear map with weights in int8, [.., input_dim] -> [.., dim].

    :param weight: [dim, input_dim]
    :param bias: [dim]; None for none
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        steps = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127  # [dim]
        offsets = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch 2.13 announces another type for such weights
            rows = torch.quantize_per_channel(weight, steps.double(), offsets, axis=0, dtype=torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(rows, None if bias is None else bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, REDUCE_RANGE)
        return y


def convert_to_int8(model: nn.Module) -> int:
    """Replace the linear maps of a model in place: those of its layers, and that to the words.

    :param model: in evaluation mode, on the CPU, in float32; it can no longer be trained or saved
    :returns: number of the maps of layers
    """
    count = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is Linear or (name == "output_projection" and type(child) is nn.Linear):
                setattr(module, name, Int8Linear(child.weight, child.bias))
                count += type(child) is Linear
    return count
