"""The fused criteria report what fairseq's report, with the same gradients."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from batches import PAD, pair_sample, perturb
from fairseq.criterions import CRITERION_REGISTRY
from models_for_tests import SMALL, build_model

from ode_transformer.models.criteria import label_smoothed_cross_entropy

TASK = Namespace(target_dictionary=Namespace(pad=lambda: PAD))
SMOOTHED = {"label_smoothing": 0.1, "report_accuracy": True}


@pytest.mark.parametrize("arch", ["ode_transformer_rk2", "transformer"])
@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cross_entropy", {}),
        ("label_smoothed_cross_entropy", SMOOTHED),
        ("label_smoothed_cross_entropy", SMOOTHED | {"label_smoothing": 0.0, "ignore_prefix_size": 2}),
    ],
)
def test_values_and_gradients_are_fairseqs(name: str, options: dict[str, Any], reduce: bool, arch: str) -> None:
    sample = pair_sample([5, 3, 2], [6, 3, 4])
    torch.manual_seed(2)
    model = perturb(build_model(arch, **SMALL))
    model.decoder.get_normalized_probs_scriptable = None  # breaks fairseq's computation, which ours must not call
    outcomes = []
    for prefix in ("fused_", ""):
        if not prefix or options.get("report_accuracy"):
            vars(model.decoder).pop("get_normalized_probs_scriptable", None)
        model.zero_grad()
        criterion = CRITERION_REGISTRY[prefix + name](TASK, sentence_avg=False, **options)
        assert type(criterion).__name__ == CRITERION_REGISTRY[name].__name__  # of which a resumed training makes sure
        loss, _, logged = criterion(model, sample, reduce=reduce)
        (3 * loss).sum().backward()
        outcomes.append(({"loss": loss} | logged, {key: p.grad for key, p in model.named_parameters()}))
    for mine, fairseqs in zip(*outcomes, strict=True):
        assert list(mine) == list(fairseqs)
        for key in mine:
            expected = torch.as_tensor(fairseqs[key])
            if expected.numel() > 1 and mine[key].dim() == 1 and expected.dim() == 2:  # fairseq keeps an axis of one
                expected = expected[:, 0]
            torch.testing.assert_close(torch.as_tensor(mine[key]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_loss_is_exact_also_for_impossible_words(dtype: torch.dtype, scale: float) -> None:
    logits = (scale * torch.randn(40, 50, generator=torch.Generator().manual_seed(0))).to(dtype).requires_grad_()
    target = torch.arange(40) % 5
    loss, nll = label_smoothed_cross_entropy(logits, target, PAD, 0.1)
    exact_logits = logits.detach().double().requires_grad_()
    options = {"ignore_index": PAD, "reduction": "none"}
    # fairseq spreads ε over the other words, PyTorch over all.
    exact = torch.nn.functional.cross_entropy(exact_logits, target, label_smoothing=0.1 * 50 / 49, **options)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(
        nll.double(), torch.nn.functional.cross_entropy(exact_logits, target, **options), rtol=1e-6, atol=1e-5
    )
    loss.sum().backward()
    exact.sum().backward()
    assert logits.grad is not None
    assert exact_logits.grad is not None
    torch.testing.assert_close(
        logits.grad.double(), exact_logits.grad, rtol=0, atol=1e-6 if dtype == torch.float32 else 4e-3
    )
