import torch
from torch import nn

from ode_transformer.nn import (
    AttentionContext,
    FeedForward,
    Layer,
    MultiheadAttention,
    SubLayer,
    SubLayerKind,
    attention_mask,
)

DIM = 8


def layer() -> Layer:
    return Layer(
        {
            "self_attn": SubLayer(SubLayerKind.SELF_ATTENTION, MultiheadAttention(DIM, 2), DIM),
            "ffn": SubLayer(SubLayerKind.FEED_FORWARD, FeedForward(DIM, 12, torch.relu), DIM),
        }
    ).double()


def test_y_plus_f_is_torchs_own_pre_norm_layer() -> None:
    made = layer()
    attn, ffn = made["self_attn"], made["ffn"]
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    torch_layer = nn.TransformerEncoderLayer(DIM, 2, 12, dropout=0, batch_first=True, norm_first=True).double()
    projections = (attn.function.q_proj, attn.function.k_proj, attn.function.v_proj)
    torch_layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([p.weight for p in projections]),
            "self_attn.in_proj_bias": torch.cat([p.bias for p in projections]),
            "self_attn.out_proj.weight": attn.function.out_proj.weight,
            "self_attn.out_proj.bias": attn.function.out_proj.bias,
            "linear1.weight": ffn.function.fc1.weight,
            "linear1.bias": ffn.function.fc1.bias,
            "linear2.weight": ffn.function.fc2.weight,
            "linear2.bias": ffn.function.fc2.bias,
            "norm1.weight": attn.layer_norm.weight,
            "norm1.bias": attn.layer_norm.bias,
            "norm2.weight": ffn.layer_norm.weight,
            "norm2.bias": ffn.layer_norm.bias,
        }
    )
    y = torch.randn(2, 5, DIM, dtype=torch.float64)
    mask = attention_mask(5, 5, y.device)
    (block,) = made.blocks({SubLayerKind.SELF_ATTENTION: AttentionContext(mask)})
    torch.testing.assert_close(y + block.field(y), torch_layer(y))


def test_dropout_acts_on_the_increment_alone() -> None:
    sublayer = SubLayer(SubLayerKind.FEED_FORWARD, FeedForward(DIM, 12, torch.relu), DIM, dropout=0.5)
    nn.init.normal_(sublayer.function.fc2.bias)
    x = torch.randn(64, DIM)
    out = sublayer(x)
    kept = out != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(out[kept], 2 * sublayer.eval()(x)[kept])
