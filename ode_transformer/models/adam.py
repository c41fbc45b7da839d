"""fairseq's Adam over all parameters at once, by PyTorch's fused kernel.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← (1 − ηλ) θ
    fairseq    θ ← θ − η √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε)
    PyTorch    θ ← θ − η' m / (√v + ε)        at t = ∞, where it corrects nothing; η' = η √(1 − β₂ᵗ) / (1 − β₁ᵗ)

On a GPU the parameters, their gradients, both moments and the float32 copy of half-precision parameters are one flat
tensor each, so that an update is a handful of launches. Axes: none, all tensors have the shape of a parameter.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import adam, register_optimizer
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from omegaconf import II
from torch import Tensor

from ode_transformer.graphs import FlatTensor, flatten, static_gradients

FLAT_DEVICES = {"cuda"}  # on a CPU each parameter of a checkpoint would keep the storage of all
_MOMENTS = ("exp_avg", "exp_avg_sq")
_NORM_MARGIN = 1e-6  # that clipping adds to a norm


class Adam(torch.optim.Optimizer):
    """Adam with decoupled weight decay; its state has the form of ``fairseq.optim.adam.Adam``.

    :param settings: lr, betas, eps and weight_decay
    :param flat: the parameters as parts of one tensor, and their gradients, perhaps in half precision
    """

    supports_memory_efficient_fp16 = True  # by the float32 copy of ``FairseqAdam``
    disable_mem_eff_fp16_loading_hack = True  # for optimizers without a float32 copy
    supports_flat_params = True

    def __init__(self, params: Any, settings: dict[str, Any], flat: tuple[FlatTensor, FlatTensor] | None) -> None:
        super().__init__(params, settings | {"amsgrad": False})
        self._flat = flat
        self._flat_moments = [FlatTensor(flat[0].parts) for _ in _MOMENTS] if flat else []
        self._updates_all = flat is not None and flat[0].whole.dtype != flat[1].whole.dtype
        self._endless: dict[torch.device, Tensor] = {}  # t of PyTorch's kernel

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None, scale: float = 1.0) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient, which is divided by ``scale``."""
        loss = None
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
                self._update(rows, device, count, group, scale)
        return loss

    def _count_update(self, number: int, parameter: Tensor) -> int:
        """Return the number t of the parameter's update that begins; 0 if it has no gradient."""
        if parameter.grad is None and not self._updates_all:
            return 0
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            flat = [moment.parts[number] for moment in self._flat_moments]
            state.update(zip(_MOMENTS, flat or [torch.zeros_like(parameter) for _ in _MOMENTS], strict=True))
        state["step"] += 1
        return int(state["step"])

    def _tensors(self, parameters: list[Tensor], run: list[int]) -> list[list[Tensor]]:
        """Return θ, g, m and v of neighbouring parameters, which are one slice of flat tensors."""
        if self._flat is None:
            rows = [parameters[number] for number in run]
            return [[p, p.grad, *(self.state[p][moment] for moment in _MOMENTS)] for p in rows if p.grad is not None]
        values, gradients, *moments = (x.span(run[0], run[-1] + 1) for x in (*self._flat, *self._flat_moments))
        return [[values, gradients.to(values.dtype), *moments]]

    def _update(
        self, rows: list[list[Tensor]], device: torch.device, updates: int, group: dict[str, Any], scale: float
    ) -> None:
        beta1, beta2 = group["betas"]
        correction = math.sqrt(1 - beta2**updates) / (1 - beta1**updates)
        if device not in self._endless:
            self._endless[device] = torch.full((), math.inf, device=device)
        values, gradients, *moments = (list(column) for column in zip(*rows, strict=True))
        torch._fused_adamw_(
            values,
            gradients,
            moments[0],
            moments[1],
            [],
            [self._endless[device]] * len(rows),
            lr=group["lr"] * correction,
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"] / correction,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=None if scale == 1.0 else torch.full((), scale, device=device),
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of :meth:`state_dict`, into the flat moments if there are any."""
        super().load_state_dict(state_dict)
        for name, moments in zip(_MOMENTS, self._flat_moments, strict=False):
            for parameter, flat in zip(self.param_groups[0]["params"], moments.parts, strict=True):
                if parameter in self.state:
                    self.state[parameter][name] = flat.copy_(self.state[parameter][name])


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
    """fairseq's ``adam`` with a fused update; it scales and clips gradients within the update.

    Parameters in half precision, as with ``--memory-efficient-fp16``, are updated through one float32 copy of them all,
    as with ``--fp16``; but fairseq's own copy costs two launches for each parameter, this one a few for all together.
    """

    def __init__(self, cfg: Any, params: Iterable[Tensor]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        self._parameters = params = list(params)
        self._factor = self._clip_factor = 1.0
        self._copy: FlatTensor | None = None  # float32, of parameters in half precision
        self._values: FlatTensor | None = None
        if params[0].dtype in (torch.float16, torch.bfloat16):
            self._values, self._copy = flatten(params), FlatTensor(params, torch.float32)
            self._copy.whole.copy_(self._values.whole)
            params = [torch.nn.Parameter(values) for values in self._copy.parts]
        # FSDP moves a parameter's storage, and several devices cannot share one tensor.
        elif {p.device.type for p in params} <= FLAT_DEVICES and len({p.device for p in params}) == 1 < len(params):
            self._values = None if hasattr(params[0], "_is_sharded") else flatten(params)
        flat = None
        if self._values is not None:
            self._gradients = static_gradients(self._parameters)
            flat = self._copy or self._values, self._gradients
        self._optimizer = Adam(params, self.optimizer_config, flat)

    @torch.no_grad()
    def _collect_gradients(self) -> None:
        """Copy gradients that lie elsewhere into the flat tensor; in half precision a missing one is zero."""
        if self._values is None:
            return
        parts = zip(self._parameters, self._gradients.parts, strict=True)
        elsewhere = [(p, flat) for p, flat in parts if p.grad is not flat]
        missing = [flat for p, flat in elsewhere if p.grad is None]
        moved = [(p, p.grad, flat) for p, flat in elsewhere if p.grad is not None]
        if missing:
            torch._foreach_zero_(missing)  # which the norm counts
        if moved:
            torch._foreach_copy_([flat for *_, flat in moved], [gradient for _, gradient, _ in moved])
        for parameter, _, flat in moved:
            parameter.grad = flat

    def all_reduce_grads(self, module: Any) -> None:
        """Replace the gradients by their mean over the processes of ``--ddp-backend legacy_ddp``, in one reduction."""
        if self._values is None or not hasattr(module, "all_reduce_grads"):
            super().all_reduce_grads(module)
            return
        self._collect_gradients()
        for parameter, flat in zip(self._parameters, self._gradients.parts, strict=True):
            parameter.grad = flat  # others may have a gradient where this process has none
        self._gradients.whole.div_(module.world_size)
        distributed_utils.all_reduce(self._gradients.whole, module.process_group)

    def multiply_grads(self, c: float | Tensor) -> None:
        """Multiply the gradients by a number; the update does it."""
        self._factor *= float(c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the norm of all gradients on the CPU; the update scales them if it is larger than ``max_norm`` > 0."""
        self._collect_gradients()
        if self._values is not None:
            norm = torch.linalg.vector_norm(self._gradients.whole, dtype=torch.float32)
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.params if p.grad is not None])
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        norm = norm.cpu() * self._factor  # read once: the trainer looks at it several times
        self._clip_factor = min(1.0, max_norm / (float(norm) + _NORM_MARGIN)) if max_norm > 0 else 1.0
        return norm

    def step(self, closure: Callable[[], float] | None = None, scale: float = 1.0, groups: Any = None) -> None:
        """Update all parameters that have a gradient, which is divided by ``scale``."""
        self._collect_gradients()
        self.optimizer.step(closure, scale=scale / (self._factor * self._clip_factor))
        self._factor = self._clip_factor = 1.0
        if self._values is not None and self._copy is not None:
            self._values.whole.copy_(self._copy.whole)

    def zero_grad(self) -> None:
        self._factor = self._clip_factor = 1.0
        for parameter in self._parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state; that of parameters in half precision is one of all their numbers, as with ``--fp16``."""
        state: dict[str, Any] = super().state_dict()
        if self._copy is None:
            return state
        states = list(state["state"].values())
        joined = {name: torch.cat([s[name].flatten() for s in states]) for name in _MOMENTS} if states else {}
        group = state["param_groups"][0] | {"params": [0]}
        return {"state": {0: {"step": states[0]["step"], **joined}} if states else {}, "param_groups": [group]}

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Load a state of :meth:`state_dict`, also one that was saved without flat tensors."""
        if self._copy is not None:
            (group,), numbers = state_dict["param_groups"], range(len(self._parameters))
            states: dict[int, dict[str, Any]] = {}
            if state_dict["state"]:
                joined, sizes = state_dict["state"][0], [p.numel() for p in self._parameters]
                parts = zip(*(joined[name].split(sizes) for name in _MOMENTS), strict=True)
                for number, (parameter, moments) in enumerate(zip(self._parameters, parts, strict=True)):
                    views = (moment.view(parameter.shape) for moment in moments)
                    states[number] = {"step": joined["step"], **dict(zip(_MOMENTS, views, strict=True))}
            state_dict = {"state": states, "param_groups": [group | {"params": list(numbers)}]}
        super().load_state_dict(state_dict, optimizer_overrides)
