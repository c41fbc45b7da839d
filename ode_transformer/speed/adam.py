"""Adam over all parameters at once, by PyTorch's fused kernel, or by our own for parameters in half precision.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← (1 − ηλ) θ
    fairseq    θ ← θ − η √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε)
    PyTorch    θ ← θ − η' m / (√v + ε)        at t = ∞, where it corrects nothing; η' = η √(1 − β₂ᵗ) / (1 − β₁ᵗ)

Axes: none, all tensors have the shape of a parameter.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ode_transformer.speed import kernels
from ode_transformer.speed.flat import FlatTensor

MOMENTS = ("exp_avg", "exp_avg_sq")
BLOCK, WARPS = 1024, 4  # numbers of a program


class Adam(torch.optim.Optimizer):
    """Adam with decoupled weight decay; its state has the form of ``fairseq.optim.adam.Adam``.

    :param settings: lr, betas, eps and weight_decay
    :param flat: the parameters as parts of one tensor, and their gradients, perhaps in half precision
    :param rounded: a copy of the parameters in the precision of the gradients, which an update writes, too
    """

    supports_memory_efficient_fp16 = True  # by the float32 copy of ``FairseqAdam``
    disable_mem_eff_fp16_loading_hack = True  # for optimizers without a float32 copy
    supports_flat_params = True

    def __init__(
        self,
        params: Any,
        settings: dict[str, Any],
        flat: tuple[FlatTensor, FlatTensor] | None,
        rounded: FlatTensor | None = None,
    ) -> None:
        super().__init__(params, settings | {"amsgrad": False})
        self.flat, self.rounded = flat, rounded
        self._flat_moments = [FlatTensor(flat[0].parts) for _ in MOMENTS] if flat else []
        self._endless: dict[torch.device, Tensor] = {}  # t of PyTorch's kernel
        self._counted: list[Tensor] = []  # parameters of the last update

    @torch.no_grad()
    def step(  # type: ignore[override]
        self,
        closure: Callable[[], float] | None = None,
        scale: float | Tensor = 1.0,
        overflow: Tensor | None = None,
    ) -> float | None:
        """Update all parameters that have a gradient, which is divided by ``scale``.

        :param overflow: 1 if the update shall change nothing but its number, else 0, as a tensor of their device
        """
        loss, self._counted = None, []
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            together: dict[tuple[torch.device, int], list[list[Tensor]]] = defaultdict(list)
            updates = [self._count_update(number, parameter) for number, parameter in enumerate(group["params"])]
            for count, run in groupby(range(len(updates)), key=updates.__getitem__):
                for tensors in self._tensors(group["params"], list(run)) if count else ():
                    together[tensors[0].device, count].append(tensors)
            for (device, count), rows in together.items():
                self._update(rows, device, count, group, scale, overflow)
        return loss

    def _count_update(self, number: int, parameter: Tensor) -> int:
        """Return the number t of the parameter's update that begins; 0 if it has no gradient."""
        if parameter.grad is None and self.rounded is None:
            return 0
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            flat = [moment.parts[number] for moment in self._flat_moments]
            state.update(zip(MOMENTS, flat or [torch.zeros_like(parameter) for _ in MOMENTS], strict=True))
        state["step"] += 1
        self._counted.append(parameter)
        return int(state["step"])

    def forget_update(self) -> None:
        """Take back the number of the last update, which has changed nothing else."""
        for parameter in self._counted:
            self.state[parameter]["step"] -= 1
        self._counted = []

    def _tensors(self, parameters: list[Tensor], run: list[int]) -> list[list[Tensor]]:
        """Return θ, g, m, v and perhaps the rounded θ of neighbouring parameters, one slice of flat tensors each."""
        if self.flat is None:
            rows = [parameters[number] for number in run]
            return [[p, p.grad, *(self.state[p][moment] for moment in MOMENTS)] for p in rows if p.grad is not None]
        tensors = [*self.flat, *self._flat_moments, *([] if self.rounded is None else [self.rounded])]
        return [[x.span(run[0], run[-1] + 1) for x in tensors]]

    def _update(
        self,
        rows: list[list[Tensor]],
        device: torch.device,
        updates: int,
        group: dict[str, Any],
        scale: float | Tensor,
        overflow: Tensor | None,
    ) -> None:
        beta1, beta2 = group["betas"]
        correction = math.sqrt(1 - beta2**updates) / (1 - beta1**updates)
        if device not in self._endless:
            self._endless[device] = torch.full((), math.inf, device=device)
        if not isinstance(scale, Tensor) and scale != 1.0:
            scale = torch.full((), scale, device=device)
        divisor = scale.float() if isinstance(scale, Tensor) else None
        if self.rounded is not None and kernels.is_used("adam", device):
            for row in rows:
                _update_by_kernel(row, divisor, overflow, correction, group)
            return
        values, gradients, moments, squares, *rounded = (list(column) for column in zip(*rows, strict=True))
        torch._fused_adamw_(
            values,
            [gradient.to(x.dtype) for x, gradient in zip(values, gradients, strict=True)],
            moments,
            squares,
            [],
            [self._endless[device]] * len(rows),
            lr=group["lr"] * correction,
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"] / correction,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
            found_inf=overflow,
        )
        for copies in rounded:
            torch._foreach_copy_(copies, values)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of :meth:`state_dict`, into the flat moments if there are any."""
        super().load_state_dict(state_dict)
        for name, moments in zip(MOMENTS, self._flat_moments, strict=False):
            for parameter, flat in zip(self.param_groups[0]["params"], moments.parts, strict=True):
                if parameter in self.state:
                    self.state[parameter][name] = flat.copy_(self.state[parameter][name])


def _update_by_kernel(
    row: list[Tensor], divisor: Tensor | None, overflow: Tensor | None, correction: float, group: dict[str, Any]
) -> None:
    """Update θ and write it rounded by one kernel, which reads and writes each number once.

    :param row: θ, g, m, v and the rounded θ, of which g and the last have half precision
    """
    values, gradients, m, v, rounded = row
    rate, (beta1, beta2) = group["lr"], group["betas"]
    numbers = rate * correction, rate * group["weight_decay"], beta1, 1 - beta1, beta2, 1 - beta2, group["eps"]
    moved = values.numel() * (6 * values.element_size() + 2 * rounded.element_size())
    grid, constants = (-(-values.numel() // BLOCK),), {"BLOCK": BLOCK, "num_warps": WARPS}
    tensors = values, rounded, gradients, m, v, divisor, overflow
    kernels.launch("adam_kernels.update", grid, moved, *tensors, *numbers, values.numel(), **constants)
