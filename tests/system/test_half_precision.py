"""A scheme of each kind computes in half precision what it computes in float32, as far as that precision goes."""

import pytest
import torch
from batches import PAD, batch, teacher_forced
from models_for_tests import SMALL, build_model

from ode_transformer.numerics import RECURRENCES


def loss_and_gradients(arch: str, dtype: torch.dtype, **options: object) -> tuple[float, dict[str, torch.Tensor]]:
    """As fairseq trains with --fp16 and --bf16: the whole model is converted, the loss is summed in float32."""
    torch.manual_seed(3)
    # ReLU's derivative jumps where rounding changes a sign.
    model = build_model(arch, **SMALL, activation_fn="gelu", **options).to(dtype).train()
    source, target = batch([9, 4, 6]), batch([5, 8, 3], seed=1)
    logits = model(source, None, teacher_forced(target))[0]
    assert logits.dtype == dtype
    loss = torch.nn.functional.cross_entropy(logits.float().transpose(1, 2), target, ignore_index=PAD)
    loss.backward()
    return loss.item(), {name: p.grad.float() for name, p in model.named_parameters()}


KINDS = [  # of schemes, by architecture and scheme of the decoder
    ("ode_transformer_rk2_tiny", "rk4"),
    ("dlstm_tiny", "dlstm"),
    ("ode_transformer_euler_tiny", "multistep"),
    ("ode_transformer_rk4_tiny", "pcformer2"),
    ("ode_transformer_euler_tiny", "iiet"),
    ("reformer_fast_tiny", "rk2"),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("arch", "decoder"), KINDS)
def test_loss_and_gradients_are_near_those_of_float32(arch: str, decoder: str, dtype: torch.dtype) -> None:
    options: dict[str, object] = {"decoder_ode_scheme": decoder, "decoder_normalize_before": True}
    if decoder in RECURRENCES:
        options["decoder_layer_history"] = "none"
    exact, gradients = loss_and_gradients(arch, torch.float32, **options)
    loss, rounded = loss_and_gradients(arch, dtype, **options)
    unit = torch.finfo(dtype).eps
    assert abs(loss - exact) < unit * exact
    flat, flat_rounded = (torch.cat([g.flatten() for g in gs.values()]) for gs in (gradients, rounded))
    assert flat_rounded.isfinite().all()
    assert (flat_rounded - flat).norm() < 4 * unit * flat.norm()
