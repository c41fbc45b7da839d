"""Parameter counts of every architecture, by the arithmetic of the papers' own parts, and the published totals."""

import pytest
from models_for_tests import count_parameters, outline

from ode_transformer.nn.architectures import (
    DLSTM_SIZES,
    MACARON_SIZES,
    SCHEME_OPTIONS,
    TRANSLATION_SIZES,
    matched_inner_dim,
)


def expected(size: dict, vocabulary: int, method: str, shared: bool) -> int:
    d, f, h = (size[f"encoder_{name}"] for name in ("embed_dim", "ffn_embed_dim", "attention_heads"))
    encoder_layers, decoder_layers = size["encoder_layers"], size["decoder_layers"]
    mha, ffn, norm = 4 * (d * d + d), 2 * d * f + f + d, 2 * d
    relative = 17 * d // h
    total = vocabulary * d + 2 * norm  # embedding and the two final norms
    total += encoder_layers * (mha + ffn + 2 * norm + relative)
    total += decoder_layers * (2 * mha + ffn + 3 * norm + relative)
    if method != "ones":
        total += sum((layers + 1) ** 2 + layers * norm for layers in (encoder_layers, decoder_layers))  # DLCL
    if method == "normalized":
        total += (encoder_layers + decoder_layers) * norm
    if method in ("pcformer", "iiet"):  # W' beside W, and twice as many normalisations; one α
        total += (encoder_layers + 1) ** 2 + encoder_layers * norm + (method == "pcformer")
    return total + (method == "rk2") * (1 if shared else encoder_layers) * (2 * d + 1)


@pytest.mark.parametrize(
    ("method", "suffix"),
    [*((method, "_small_18") for method in SCHEME_OPTIONS), *(("rk2", suffix) for suffix in TRANSLATION_SIZES)],
)
def test_every_method_and_every_size(method: str, suffix: str) -> None:
    for shared in (False, True) if suffix == "_small_18" and method == "rk2" else (False,):
        options = {"ode_share_coefficients": shared} if method == "rk2" else {}
        model = outline(f"ode_transformer_{method}{suffix}", 40, **options)
        assert count_parameters(model) == expected(TRANSLATION_SIZES[suffix], 40, method, shared)


@pytest.mark.parametrize("suffix", MACARON_SIZES)
def test_macaron_sizes_and_a_difference_of_3d_for_each_layer(suffix: str) -> None:
    d, f, layers = (MACARON_SIZES[suffix][f"encoder_{name}"] for name in ("embed_dim", "ffn_embed_dim", "layers"))
    macaron = outline(f"macaron{suffix}", 40)
    for stack, names in (
        (macaron.encoder, ["ffn_down", "self_attn", "ffn_up"]),
        (macaron.decoder, ["ffn_down", "self_attn", "encoder_attn", "ffn_up"]),
    ):
        assert len(stack.layers) == layers
        for layer in stack.layers:
            assert list(layer) == names
            assert [layer[name].step_fraction for name in names] == [0.5, *[1.0] * (len(names) - 2), 0.5]
            assert [layer[name].function.fc1.out_features for name in ("ffn_down", "ffn_up")] == [f // 2] * 2
            assert layer["self_attn"].function.relative_keys is None
    transformer = outline(f"macaron{suffix}", 40, layer_splitting="lie-trotter")
    assert count_parameters(macaron) - count_parameters(transformer) == 3 * d * 2 * layers


def count(model) -> int:
    """Parameters outside the embeddings."""
    return sum(p.numel() for name, p in model.named_parameters() if "embed_tokens" not in name)


@pytest.mark.parametrize("suffix", DLSTM_SIZES)
def test_a_matched_model_has_its_baselines_size(suffix: str) -> None:
    """Up to half a step of the inner size, 4 of its columns in every layer."""
    d, layers = (DLSTM_SIZES[suffix][f"encoder_{name}"] for name in ("embed_dim", "layers"))
    inner = matched_inner_dim(DLSTM_SIZES[suffix])
    assert inner % 8 == 0
    matched, lstm = outline(f"dlstm_matched{suffix}", 40), outline(f"dlstm{suffix}", 40)
    residual = {"encoder_ode_scheme": "euler", "decoder_ode_scheme": "euler"}
    residual |= {"encoder_normalize_before": True, "decoder_normalize_before": True}
    baseline = count(outline(f"dlstm{suffix}", 40, **residual)) - 4 * d  # without the closing normalisations
    assert abs(count(matched) - baseline) <= 4 * (3 * d + 3) * 2 * layers
    assert count(matched) < count(lstm)
