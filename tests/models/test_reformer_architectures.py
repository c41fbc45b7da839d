"""Reformer architectures: sizes, published parameter counts, and options that make no model."""

import pytest
from models_for_tests import build_model, count_parameters

SIZES = {  # width, inner size, heads, layers of PreNet and joint stack, dropout of residuals, weights, activations
    "base_tiny": (128, 256, 4, 0, 4, (0.1, 0.0, 0.0)),
    "fast_tiny": (128, 256, 4, 3, 3, (0.1, 0.0, 0.0)),
    "base_iwslt_de_en": (256, 1024, 4, 0, 7, (0.1, 0.0, 0.0)),
    "fast_iwslt_de_en": (256, 1024, 4, 5, 5, (0.1, 0.0, 0.0)),
    "base_nist_zh_en": (512, 2048, 8, 0, 7, (0.1, 0.1, 0.1)),
    "fast_nist_zh_en": (512, 2048, 8, 5, 5, (0.1, 0.1, 0.1)),
    "fast_iwslt_de_en_scaled": (256, 1536, 4, 7, 7, (0.1, 0.0, 0.0)),
    "fast_nist_zh_en_scaled": (512, 3072, 8, 7, 7, (0.2, 0.1, 0.1)),
}
SAME = {"reformer": "fast_nist_zh_en", "reformer_fast": "fast_nist_zh_en", "reformer_base": "base_nist_zh_en"}
ARCHITECTURES = {f"reformer_{name}": size for name, size in SIZES.items()} | {a: SIZES[b] for a, b in SAME.items()}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sizes_and_the_arithmetic_of_the_parts(arch: str) -> None:
    d, f, heads, prenet, joint, rates = ARCHITECTURES[arch]
    model = build_model(arch, 30, 40)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (prenet, joint)
    assert all(layer["self_attn_source"].function.heads == heads for layer in model.decoder.layers)
    args = model.args
    assert (args.dropout, args.attention_dropout, args.activation_dropout) == rates
    assert (args.joint_input, args.joint_combination, args.joint_reduction) == ("released", "add", "softmax")
    assert (args.joint_dropout, args.max_joint_cells, args.max_relative_positions) == ("shared", 131_072, 0)
    attention, ffn, norm = 4 * (d * d + d), 2 * d * f + f + d, 2 * d
    expected = (30 + 2 * 40) * d  # nothing is tied
    expected += prenet * (attention + ffn + 2 * norm) + (norm if prenet else 0)
    expected += joint * 2 * (attention + ffn + 2 * norm)
    expected += d * d + 2 * norm  # the reduction, a normalisation before and after it
    assert count_parameters(model) == expected


@pytest.mark.parametrize(
    ("arch", "total"),
    [
        ("reformer_base_iwslt_de_en", 16_783_872),  # published as 16M, 17M and 27M
        ("reformer_fast_iwslt_de_en", 17_574_144),
        ("reformer_fast_iwslt_de_en_scaled", 27_828_480),
    ],
)
def test_published_totals(arch: str, total: int) -> None:
    """With the 8,848 German and 6,632 English entries of the usual preparation of IWSLT'14."""
    assert count_parameters(build_model(arch, 8848, 6632)) == total
