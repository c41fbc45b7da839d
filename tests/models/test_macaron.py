"""Macaron architectures: sizes, and parameters that match those of the Transformer."""

import pytest
from models_for_tests import count_parameters, outline

from ode_transformer.models.ode_transformer import MACARON_SIZES

# d, f of a whole layer, heads, layers, inner size of each half: the papers' settings
EXPECTED = {
    "": (512, 2048, 8, 6, 1024),
    "_tiny": (128, 256, 4, 4, 128),
    "_iwslt_de_en": (512, 2048, 4, 6, 1024),
    "_iwslt_de_en_released": (512, 1024, 4, 6, 512),
    "_wmt_en_de": (512, 2048, 8, 6, 1024),
    "_wmt_en_de_big": (1024, 4096, 16, 6, 2048),
}


@pytest.mark.parametrize("suffix", MACARON_SIZES)
def test_sizes_and_a_difference_of_3d_for_each_layer(suffix: str) -> None:
    d, f, heads, layers, half = EXPECTED[suffix]
    macaron = outline(f"macaron{suffix}", 40)
    for stack, names in (
        (macaron.encoder, ["ffn_down", "self_attn", "ffn_up"]),
        (macaron.decoder, ["ffn_down", "self_attn", "encoder_attn", "ffn_up"]),
    ):
        assert len(stack.layers) == layers
        for layer in stack.layers:
            assert list(layer) == names
            assert [layer[name].step_fraction for name in names] == [0.5, *[1.0] * (len(names) - 2), 0.5]
            assert [layer[name].function.fc1.out_features for name in ("ffn_down", "ffn_up")] == [half] * 2
            assert layer["self_attn"].function.heads == heads
            assert layer["self_attn"].function.relative_keys is None
    transformer = outline(f"macaron{suffix}", 40, layer_splitting="lie-trotter")
    assert count_parameters(macaron) - count_parameters(transformer) == 3 * d * 2 * layers
    sizes = {"encoder_embed_dim": d, "encoder_ffn_embed_dim": f, "encoder_layers": layers}
    sizes |= {name.replace("encoder", "decoder"): value for name, value in sizes.items()}
    pre_norm = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    heads_of = {f"{stack}_attention_heads": heads for stack in ("encoder", "decoder")}
    assert count_parameters(outline("transformer", 40, **sizes, **pre_norm, **heads_of)) == count_parameters(
        transformer
    )
