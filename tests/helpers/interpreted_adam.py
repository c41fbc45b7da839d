"""Updates by kernels and by formulas."""

from unittest.mock import patch

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16)


@patch("ode_transformer.speed.adam.BLOCK", 64)  # several programs
def updates(dtype: torch.dtype, by_kernel: bool, device: str = "cpu") -> list[list[Tensor]]:
    """Return parameters, their float32 copy and both moments after each of four updates; the third overflows."""
    from recorded_steps import build_optimizer

    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    parameters = [random(5, 7).requires_grad_(), random(200).requires_grad_()]
    outcomes = []
    with patch("ode_transformer.speed.kernels.is_used", lambda name, _: by_kernel and name == "adam"):
        optimizer = build_optimizer("fused_adam", None, parameters)
        for number in range(4):
            for parameter in parameters:
                parameter.grad = random(*parameter.shape)
            overflow = torch.tensor(float(number == 2), device=device)
            adam = optimizer.optimizer
            optimizer._collect_gradients()
            adam.step(scale=1.0 if number == 1 else torch.tensor(1.7, device=device), overflow=overflow)
            moments = [
                adam.state[p][name].clone()
                for p in adam.param_groups[0]["params"]
                for name in ("exp_avg", "exp_avg_sq")
            ]
            outcomes.append([*(x.detach().clone() for x in (*parameters, *adam.flat[0].parts)), *moments])
    return outcomes
