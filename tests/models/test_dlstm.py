"""Depth-wise LSTM architectures: their settings, and the arithmetic of their sizes."""

import pytest
import torch
from models_for_tests import outline

from ode_transformer.models.ode_transformer import DLSTM_SIZES, matched_inner_dim

EXPECTED = {  # d, f, heads, layers of each stack: the paper's settings are those of Vaswani et al. 2017
    "": (512, 2048, 8, 6),
    "_tiny": (128, 256, 4, 4),
    "_iwslt_de_en": (512, 1024, 4, 6),
    "_wmt_en_de": (512, 2048, 8, 6),
    "_wmt_en_de_big": (1024, 4096, 16, 6),
}
# Without embeddings: gates 2(6d² + 9d), attentions 18(4d² + 4d), hidden 12(3df + 3f + d), at base and big size.
COUNTS = [
    ("dlstm", {}, 59_894_784),
    ("dlstm", {"dlstm_hidden": "linear"}, 28_376_064),
    ("dlstm", {"dlstm_merge": "concat"}, 63_043_584),
    ("dlstm", {"dlstm_merge": "concat-unprojected"}, 66_972_672),  # + d·3d for the gates, + 6·df
    ("dlstm", {"dlstm_output_norm": True}, 59_896_832),  # + 2·2d
    ("dlstm", {"dlstm_normalization": "joint"}, 59_894_784),
    ("dlstm", {"dlstm_share": "all"}, 28_370_944),
    ("dlstm", {"dlstm_share": "none"}, 75_669_504),
    ("dlstm_wmt_en_de", {}, 59_894_784),
    ("dlstm_wmt_en_de_big", {}, 239_327_232),
]


def count(model) -> int:
    """Parameters outside the embeddings."""
    return sum(p.numel() for name, p in model.named_parameters() if "embed_tokens" not in name)


@pytest.mark.parametrize(("arch", "options", "total"), COUNTS)
def test_counts(arch: str, options: dict, total: int) -> None:
    assert count(outline(arch, 40, **options)) == total


@pytest.mark.parametrize("suffix", DLSTM_SIZES)
def test_sizes(suffix: str) -> None:
    d, f, heads, layers = EXPECTED[suffix]
    model = outline(f"dlstm{suffix}", 40)
    for stack, names in ((model.encoder, ["self_attn"]), (model.decoder, ["self_attn", "encoder_attn"])):
        assert [list(layer) for layer in stack.layers] == [names] * layers
        assert all(layer["self_attn"].function.heads == heads for layer in stack.layers)
        assert [hidden[0].fc1.weight.shape for hidden in stack.scheme.hidden] == [(f, 2 * d)] * layers
        assert len(stack.scheme.gates) == 1
        assert stack.layer_norm is None
        assert stack.scheme.hidden[0][0].activation(torch.tensor([-1.0])) < 0  # GeLU, no ReLU


@pytest.mark.parametrize("suffix", DLSTM_SIZES)
def test_a_matched_model_has_its_baselines_size(suffix: str) -> None:
    """Up to half a step of the inner size, 4 of its columns in every layer."""
    d, _, _, layers = EXPECTED[suffix]
    inner = matched_inner_dim(DLSTM_SIZES[suffix])
    assert inner % 8 == 0
    matched, lstm = outline(f"dlstm_matched{suffix}", 40), outline(f"dlstm{suffix}", 40)
    residual = {"encoder_ode_scheme": "euler", "decoder_ode_scheme": "euler"}
    residual |= {"encoder_normalize_before": True, "decoder_normalize_before": True}
    baseline = count(outline(f"dlstm{suffix}", 40, **residual)) - 4 * d  # without the closing normalisations
    assert abs(count(matched) - baseline) <= 4 * (3 * d + 3) * 2 * layers
    assert count(matched) < count(lstm)
