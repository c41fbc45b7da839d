"""fairseq's Adam in one pass over the parameters, by PyTorch's fused kernel.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← (1 − ηλ) θ
    fairseq    θ ← θ − η √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε)
    PyTorch    θ ← θ − η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε')        the same with ε' = ε / √(1 − β₂ᵗ)

Axes: none, all tensors have the shape of a parameter.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
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
    """Adam with decoupled weight decay; its state has the form of ``fairseq.optim.adam.Adam``."""

    supports_memory_efficient_fp16 = True  # by the float32 copy of ``FairseqAdam``
    disable_mem_eff_fp16_loading_hack = True  # for optimizers without a float32 copy
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
                state[moment] = torch.zeros_like(parameter)
        state["step"] += 1
        return int(state["step"])

    def _moment(self, parameter: Tensor, name: str) -> Tensor:
        """Return m or v, which fairseq may have loaded on another device."""
        moment: Tensor = self.state[parameter][name].to(parameter)
        self.state[parameter][name] = moment
        return moment

    def _update(self, parameters: list[Tensor], updates: int, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
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
    """fairseq's ``adam`` with a fused update, gradient norm and clipping.

    Parameters in half precision, as with ``--memory-efficient-fp16``, are updated through one float32 copy of them all,
    as with ``--fp16``; but fairseq's own copy costs two launches for each parameter, this one a few for all together.
    """

    def __init__(self, cfg: Any, params: Iterable[Tensor]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        params = list(params)
        self._halves: list[Tensor] = []
        self._copy: Tensor | None = None
        if any(p.dtype in (torch.float16, torch.bfloat16) for p in params):
            self._halves = params
            self._copy = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in params]).float())
        self._optimizer = Adam(params if self._copy is None else [self._copy], **self.optimizer_config)

    def _copy_gradients(self) -> None:
        """Give the float32 copy the gradients, zero where a parameter has none; once for each update."""
        if self._copy is not None and self._copy.grad is None:
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._halves]
            self._copy.grad = torch.cat([gradient.flatten() for gradient in gradients]).float()

    def multiply_grads(self, c: float | Tensor) -> None:
        """Multiply the gradients by a number."""
        self._copy_gradients()
        super().multiply_grads(c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the norm of all gradients, and scale them if it is larger than ``max_norm`` > 0."""
        self._copy_gradients()
        parameters = [p for p in self.params if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0 and (norm.device.type != "cpu" or not norm <= max_norm - _NORM_MARGIN):
            torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def step(self, closure: Callable[[], float] | None = None, scale: float = 1.0, groups: Any = None) -> None:
        """Update all parameters that have a gradient."""
        self._copy_gradients()
        super().step(closure, scale, groups)
        if self._copy is not None:
            new = self._copy.detach().to(self._halves[0].dtype).split([p.numel() for p in self._halves])
            with torch.no_grad():
                torch._foreach_copy_(self._halves, [n.view_as(p) for n, p in zip(new, self._halves, strict=True)])

    def zero_grad(self) -> None:
        """Remove all gradients."""
        super().zero_grad()
        for parameter in self._halves:
            parameter.grad = None
