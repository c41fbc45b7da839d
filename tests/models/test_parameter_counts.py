"""Parameter counts of every architecture, by the arithmetic of the papers' own parts, and the published totals."""

import pytest
from models_for_tests import count_parameters, outline

from ode_transformer.models.architectures import SCHEME_OPTIONS, TRANSLATION_SIZES
from ode_transformer.models.ode_transformer import DLSTM_SIZES, MACARON_SIZES, matched_inner_dim

# Totals with RPR k = 8, DLCL on both stacks, one shared gate and one embedding of V rows; published as 61M, 118M, …
PUBLISHED = [
    ("_wmt_en_de", 34040, 61_595_491),
    ("_wmt_en_de_deep", 34040, 118_376_995),
    ("_wmt_en_de_big", 34040, 211_258_211),
    ("_wmt_en_de_big_deep", 34040, 286_854_491),
    ("_wmt_en_de", 44424, 66_912_099),
    ("_wmt_en_de_deep", 44424, 123_693_603),
    ("_wmt_en_de_big", 44424, 221_891_427),
    ("_wmt_en_de_big_deep", 44424, 297_487_707),
    ("_small_28", 34040, 37_204_987),
    ("_small_18", 34040, 29_290_907),
    ("_wmt_en_de", 32584, 60_850_019),  # CNN/DailyMail
    ("_wmt_en_de", 33136, 61_132_643),  # GEC
]


@pytest.mark.parametrize(("suffix", "vocabulary", "total"), PUBLISHED)
def test_published_totals(suffix: str, vocabulary: int, total: int) -> None:
    assert count_parameters(outline(f"ode_transformer_rk2{suffix}", vocabulary, ode_share_coefficients=True)) == total


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


@pytest.mark.parametrize("suffix", TRANSLATION_SIZES)
@pytest.mark.parametrize("method", SCHEME_OPTIONS)
def test_every_architecture(method: str, suffix: str) -> None:
    for shared in (False, True) if method == "rk2" else (False,):
        options = {"ode_share_coefficients": shared} if method == "rk2" else {}
        model = outline(f"ode_transformer_{method}{suffix}", 40, **options)
        assert count_parameters(model) == expected(TRANSLATION_SIZES[suffix], 40, method, shared)


@pytest.mark.parametrize(("suffix", "millions"), [("", 69), ("_wmt_en_de_big", 226)])
def test_english_romanian_needs_dictionaries_of_different_sizes(suffix: str, millions: int) -> None:
    """The published 69M and 226M fit 48.5K to 49.4K embedding rows in all: a source matrix beside the tied target's."""
    for rows in (48_600, 49_300):
        model = outline(
            f"ode_transformer_rk2{suffix}", 34_976, rows - 34_976,
            share_decoder_input_output_embed=True, ode_share_coefficients=True,
        )  # fmt: skip
        assert count_parameters(model) // 10**6 == millions


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


# Without embeddings: gates 2(6d² + 9d), attentions 18(4d² + 4d), hidden 12(3df + 3f + d), at base and big size.
COUNTS = [
    ("dlstm", {}, 59_894_784),
    ("dlstm", {"dlstm_hidden": "linear"}, 28_376_064),
    ("dlstm", {"dlstm_merge": "concat"}, 63_043_584),
    ("dlstm", {"dlstm_merge": "concat-unprojected"}, 66_972_672),  # + d·3d for the gates, + 6·df
    ("dlstm", {"dlstm_share": "all"}, 28_370_944),
    ("dlstm", {"dlstm_share": "none"}, 75_669_504),
    ("dlstm_wmt_en_de", {}, 59_894_784),
    ("dlstm_wmt_en_de_big", {}, 239_327_232),
]


def count(model) -> int:
    """Parameters outside the embeddings."""
    return sum(p.numel() for name, p in model.named_parameters() if "embed_tokens" not in name)


@pytest.mark.parametrize(("arch", "options", "total"), COUNTS)
def test_counts_of_a_depth_wise_lstm(arch: str, options: dict, total: int) -> None:
    assert count(outline(arch, 40, **options)) == total


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
