"""Model scaling: Eq. 11 solved in closed form, and the sizes and counts of real architectures."""

import random

import pytest

from ode_transformer.cli.command import main
from ode_transformer.lab.studies.scaling import (
    ModelSize,
    ScalingStep,
    StackSize,
    count_parameters,
    model_size,
    solve,
    training_options,
)
from ode_transformer.models.model_from_options import build_outline

PAPER = ModelSize({"decoder": StackSize(5)}, 256, 1024)


def bisected(size: ModelSize, gradients: tuple[float, float], beta: float) -> float:
    """Find α of Eq. 11 by bisection: its left side rises with α."""

    def is_below(alpha: float) -> bool:
        return size.growth(ScalingStep(alpha, alpha * gradients[0], alpha * gradients[1])) < beta

    low, high = 0.0, 1.0
    while is_below(high):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low


def test_the_papers_numbers() -> None:
    step = solve(PAPER, (0.01063, 0.01069), 2)
    assert (step.alpha, step.layers, step.ffn_ratio) == pytest.approx((212.242, 2.256, 2.269), abs=5e-4)
    assert step.rounded() == ScalingStep(step.alpha, 2, 2)
    assert PAPER.enlarged(step.rounded()).options() == {"decoder-layers": 7, "decoder-ffn-embed-dim": 1536}
    assert PAPER.growth(step.rounded()) == pytest.approx(1.867, abs=5e-4)


def test_closed_form_and_bisection() -> None:
    generator = random.Random(1)
    for _ in range(200):
        kinds = ((4, 2), (8, 2), (8, 4))[: generator.randint(1, 3)]
        stacks = {str(pair): StackSize(generator.randint(1, 30), *pair) for pair in kinds}
        size, beta = ModelSize(stacks, 1, generator.uniform(0.5, 8)), generator.uniform(1.001, 5)
        gradients = (10 ** generator.uniform(-6, 1), 10 ** generator.uniform(-6, 1))
        step = solve(size, gradients, beta)
        assert step.alpha == pytest.approx(bisected(size, gradients, beta), rel=1e-9)
        assert size.growth(step) == pytest.approx(beta)
        assert (step.layers, step.ffn_ratio) == (step.alpha * gradients[0], step.alpha * gradients[1])
        assert min(step.layers, step.ffn_ratio) > 0


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["analyse", "scaling", *arguments])
    out, error = capsys.readouterr()
    return status, out, error


@pytest.mark.parametrize("arch", ["dlstm_tiny", "ode_transformer_rk2_tiny", "macaron_tiny", "reformer_base_tiny"])
def test_the_predicted_growth_is_that_of_the_model(arch: str) -> None:
    """Biases, and parameters beside the layers, account for the tolerance."""
    args = training_options(arch)
    size = model_size(args)
    step = solve(size, (1, 1), 3).rounded()
    changes = {name.replace("-", "_"): value for name, value in size.enlarged(step).options().items()}
    old, new = (count_parameters(build_outline(args, changes=options))[1] for options in ({}, changes))
    assert new / old == pytest.approx(size.growth(step), rel=0.15 if arch == "dlstm_tiny" else 0.02)


def test_the_papers_scaled_reformer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--arch", "reformer_fast_iwslt_de_en", "--gradients", "0.01063", "0.01069"]
    status, out, _ = command(capsys, *arguments, "--dictionaries", "8848", "6632")
    assert status == 0
    assert "alpha = 212.242, " in out
    assert "--encoder-layers 7 --decoder-layers 7 --encoder-ffn-embed-dim 1536 --decoder-ffn-embed-dim 1536\n" in out
    assert "without embeddings: 11,913,472 -> 22,167,808, 1.861 times" in out
    assert "with embeddings: 17,574,144 -> 27,828,480, " in out
