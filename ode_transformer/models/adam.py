"""fairseq's Adam in one pass over the parameters, by PyTorch's fused kernel.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← (1 − ηλ) θ
    fairseq    θ ← θ − η √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε)
    PyTorch    θ ← θ − η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε')        the same with ε' = ε / √(1 − β₂ᵗ)

Axes: none, all tensors have the shape of a parameter.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import adam, register_optimizer
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from omegaconf import II
from torch import Tensor

_NORM_MARGIN = 1e-6  # that clipping adds to a norm


class Adam(torch.optim.Optimizer):
    """Adam with decoupled weight decay; its state has the form of ``fairseq.optim.adam.Adam``.

    Parameters in half precision are updated through a float32 copy, as fairseq's Adam does.
    """

    supports_memory_efficient_fp16 = True
    supports_flat_params = True

    def __init__(
        self, params: Any, lr: float, betas: tuple[float, float], eps: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            together: dict[tuple[torch.device, int], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    together[parameter.device, self._count_update(parameter)].append(parameter)
            for (_, updates), parameters in together.items():
                self._update(parameters, updates, group)
        return loss

    def _count_update(self, parameter: Tensor) -> int:
        """Return the number t of the parameter's update that begins."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.zeros_like(parameter, dtype=_state_type(parameter))
        state["step"] += 1
        return int(state["step"])

    def _moment(self, parameter: Tensor, name: str) -> Tensor:
        """Return m or v; PyTorch loads them in the type of the parameter, fairseq may load them on another device."""
        moment: Tensor = self.state[parameter][name].to(parameter.device, _state_type(parameter))
        self.state[parameter][name] = moment
        return moment

    def _update(self, parameters: list[Tensor], updates: int, group: dict[str, Any]) -> None:
        copies = [p.to(_state_type(p)) for p in parameters]
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            copies,
            [p.grad.to(_state_type(p)) for p in parameters if p.grad is not None],
            [self._moment(p, "exp_avg") for p in parameters],
            [self._moment(p, "exp_avg_sq") for p in parameters],
            [],
            [torch.tensor(float(updates), device=parameters[0].device)] * len(parameters),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta2**updates),
            amsgrad=False,
            maximize=False,
        )
        for parameter, copy in zip(parameters, copies, strict=True):
            if copy is not parameter:
                parameter.copy_(copy)


def _state_type(parameter: Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)


# fairseq reads the types of options from the fields themselves: no ``from __future__ import annotations`` here.
@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Options of the optimizer, those of fairseq's Adam that a plain Adam has."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    lr: list[float] = II("optimization.lr")


# fairseq resumes a training only with an optimizer of the same class name; either of the two can resume the other's.
@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FairseqAdam(adam.FairseqAdam):
    """fairseq's ``adam`` with a fused update, gradient norm and clipping."""

    def __init__(self, cfg: Any, params: Collection[Tensor]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        self._optimizer = Adam(params, **self.optimizer_config)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the norm of all gradients, and scale them if it is larger than ``max_norm`` > 0."""
        parameters = [p for p in self.params if p.grad is not None]
        if any(p.dtype != _state_type(p) or hasattr(p, "expert") for p in parameters):
            norm: Tensor = super().clip_grad_norm(max_norm, aggregate_norm_fn)
            return norm
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0 and (norm.device.type != "cpu" or not norm <= max_norm - _NORM_MARGIN):
            torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm
