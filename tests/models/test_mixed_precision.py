"""``--cpu-bf16`` multiplies in bfloat16 while it trains on a CPU, and at no other time."""

import torch
from models_for_tests import small_model

RK2 = {"encoder_ode_scheme": "rk2", "encoder_layers": 1, "decoder_layers": 1}


def test_training_is_as_exact_as_bfloat16_and_decoding_as_float32() -> None:
    plain, mixed = (small_model(**RK2, cpu=True, cpu_bf16=flag).float() for flag in (False, True))
    mixed.load_state_dict(plain.state_dict())
    source, lengths, prefix = torch.tensor([[4, 5, 6, 2]]), torch.tensor([4]), torch.tensor([[2, 4, 5]])
    gradients = []
    for model in (plain, mixed):
        model.train()
        logits = model(source, lengths, prefix)[0]
        logits.float().logsumexp(-1).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert logits.dtype == torch.bfloat16
    assert gradients[1].dtype == torch.float32
    difference = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
    assert 1e-6 < difference < 0.03  # bfloat16 has 8 bits
    scores = [model.eval()(source, lengths, prefix)[0] for model in (plain, mixed)]
    assert torch.equal(*scores)


def test_a_trained_model_needs_no_cpu() -> None:
    assert not small_model(**RK2, cpu_bf16=True, ode_options_saved=True).encoder.trains_in_bfloat16
