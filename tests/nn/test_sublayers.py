import torch
from torch import nn

from ode_transformer.nn import (
    FeedForward,
    SubLayer,
    SubLayerKind,
)

DIM = 8


def test_dropout_acts_on_the_increment_alone() -> None:
    sublayer = SubLayer(SubLayerKind.FEED_FORWARD, FeedForward(DIM, 12, torch.relu), DIM, dropout=0.5)
    nn.init.normal_(sublayer.function.fc2.bias)
    x = torch.randn(64, DIM)
    out = sublayer(x, None)
    kept = out != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(out[kept], 2 * sublayer.eval()(x, None)[kept])
