"""fairseq's Adam as one fused update of all parameters, :mod:`ode_transformer.speed.adam`.

On a GPU the parameters, their gradients, both moments and the float32 copy of half-precision parameters are one flat
tensor each, so that an update is a handful of launches.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import adam, register_optimizer
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from omegaconf import II
from torch import Tensor

from ode_transformer.speed import flat
from ode_transformer.speed.adam import MOMENTS, Adam
from ode_transformer.speed.flat import FlatTensor

_NORM_MARGIN = 1e-6  # that clipping adds to a norm


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
        # The update multiplies gradients by both; tensors of the GPU if the norm is not read.
        self._factor: float | Tensor = 1.0
        self._clip_factor: float | Tensor = 1.0
        self.is_late = False  # until the next ``zero_grad``: the norm stays on the GPU
        self._overflow: Tensor | None = None  # then 1 if it is not finite, else 0
        self._copy: FlatTensor | None = None  # float32, of parameters in half precision
        self._values: FlatTensor | None = None
        if params[0].dtype in (torch.float16, torch.bfloat16):
            self._values, self._copy = flat.flatten(params), FlatTensor(params, torch.float32)
            self._copy.whole.copy_(self._values.whole)
            params = [torch.nn.Parameter(values) for values in self._copy.parts]
        # FSDP moves a parameter's storage, and several devices cannot share one tensor.
        elif all(flat.suits(p.device) for p in params) and len({p.device for p in params}) == 1 < len(params):
            self._values = None if hasattr(params[0], "_is_sharded") else flat.flatten(params)
        joined = None
        if self._values is not None:
            joined = self._copy or self._values, FlatTensor(self._parameters)  # and gradients
        rounded = None if self._copy is None else self._values
        self._optimizer = Adam(params, self.optimizer_config, joined, rounded)

    def _collect_gradients(self) -> None:
        """Let the gradients be one flat tensor: that of a recorded training, or a copy."""
        joined = self._optimizer.flat
        if joined is not None:
            self._optimizer.flat = joined[0], flat.join_gradients(self._parameters, joined[1])

    @property
    def can_be_late(self) -> bool:
        """Whether ``is_late`` may be set: all parameters are one tensor of a GPU."""
        return self._values is not None and flat.suits(self._values.whole.device)

    @property
    def _gradients(self) -> FlatTensor:
        """The flat gradients, where parameters are flat."""
        assert self._optimizer.flat is not None
        return self._optimizer.flat[1]

    def all_reduce_grads(self, module: Any) -> None:
        """Replace the gradients by their mean over the processes of ``--ddp-backend legacy_ddp``, in one reduction."""
        if self._values is None or not hasattr(module, "all_reduce_grads"):
            super().all_reduce_grads(module)
            return
        self._collect_gradients()
        for parameter, part in zip(self._parameters, self._gradients.parts, strict=True):
            parameter.grad = part  # others may have a gradient where this process has none
        self._gradients.whole.div_(module.world_size)
        distributed_utils.all_reduce(self._gradients.whole, module.process_group)

    def multiply_grads(self, c: float | Tensor) -> None:
        """Multiply the gradients by a number; the norm and the update do it, ``grad`` of the parameters stays as it is.

        fairseq's trainer says at its call that some optimizers do so. Its own Adam multiplies in place.
        """
        self._factor = self._factor * (c.double() if self.is_late and isinstance(c, Tensor) else float(c))

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the norm of all gradients; the update scales them if it is larger than ``max_norm`` > 0.

        The norm is on the CPU, or stays on the GPU if ``is_late``. Then an update changes nothing if it is not finite.
        """
        self._collect_gradients()
        if self._values is not None:
            norm = torch.linalg.vector_norm(self._gradients.whole, dtype=torch.float32)
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.params if p.grad is not None])
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if self.is_late:
            norm = norm * self._factor
            self._overflow = norm.isfinite().logical_not().float()
            self.clip_to(max_norm, norm, _NORM_MARGIN)
            return norm
        norm = norm.cpu() * self._factor  # read once: the trainer looks at it several times
        self._clip_factor = min(1.0, max_norm / (float(norm) + _NORM_MARGIN)) if max_norm > 0 else 1.0
        return norm

    def clip_to(self, max_norm: float, norm: Tensor, margin: float = 0.0) -> None:
        """Let the update scale gradients whose norm on the GPU is larger than ``max_norm`` > 0."""
        self._clip_factor = (max_norm / (norm.double() + margin)).clamp(max=1) if max_norm > 0 else 1.0

    def step(self, closure: Callable[[], float] | None = None, scale: float = 1.0, groups: Any = None) -> None:
        """Update all parameters that have a gradient, which is divided by ``scale``."""
        self._collect_gradients()
        self.optimizer.step(closure, scale=scale / (self._factor * self._clip_factor), overflow=self._overflow)
        self._factor = self._clip_factor = 1.0

    def zero_grad(self) -> None:
        self._factor = self._clip_factor = 1.0
        self.is_late, self._overflow = False, None
        for parameter in self._parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state; that of parameters in half precision is one of all their numbers, as with ``--fp16``."""
        state: dict[str, Any] = super().state_dict()
        if self._copy is None:
            return state
        states = list(state["state"].values())
        joined = {name: torch.cat([s[name].flatten() for s in states]) for name in MOMENTS} if states else {}
        group = state["param_groups"][0] | {"params": [0]}
        return {"state": {0: {"step": states[0]["step"], **joined}} if states else {}, "param_groups": [group]}

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Load a state of :meth:`state_dict`, also one that was saved without flat tensors."""
        if self._copy is not None:
            (group,), numbers = state_dict["param_groups"], range(len(self._parameters))
            states: dict[int, dict[str, Any]] = {}
            if state_dict["state"]:
                joined, sizes = state_dict["state"][0], [p.numel() for p in self._parameters]
                parts = zip(*(joined[name].split(sizes) for name in MOMENTS), strict=True)
                for number, (parameter, moments) in enumerate(zip(self._parameters, parts, strict=True)):
                    views = (moment.view(parameter.shape) for moment in moments)
                    states[number] = {"step": joined["step"], **dict(zip(MOMENTS, views, strict=True))}
            state_dict = {"state": states, "param_groups": [group | {"params": list(numbers)}]}
        super().load_state_dict(state_dict, optimizer_overrides)
