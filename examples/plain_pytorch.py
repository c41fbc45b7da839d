"""Train an encoder of this package in a plain PyTorch model, without fairseq.

    python examples/plain_pytorch.py

learns to reverse sequences of digits with RK2 layers and learned stage weights, and prints the falling loss:

    step   0  loss 2.398  right digits  12%
    step  30  loss 1.621  right digits  48%
    step  60  loss 0.072  right digits 100%
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ode_transformer.nn import (
    Context,
    DepthChoice,
    FeedForward,
    Layer,
    MultiheadAttention,
    SubLayer,
    SubLayerKind,
    attention_mask,
    build_scheme,
)

DIGITS, LENGTH, DIM, HEADS, LAYERS = 10, 8, 32, 4, 2


def build_layer() -> Layer:
    """Build a pre-norm Transformer layer."""
    attention = SubLayer(SubLayerKind.SELF_ATTENTION, MultiheadAttention(DIM, HEADS), DIM)
    network = SubLayer(SubLayerKind.FEED_FORWARD, FeedForward(DIM, 2 * DIM, torch.relu), DIM)
    return Layer({"self_attn": attention, "ffn": network})


class Encoder(nn.Module):
    """Encoder whose layers are steps of the scheme that ``choice`` names; a prediction for each position."""

    def __init__(self, choice: DepthChoice) -> None:
        super().__init__()
        self.embed = nn.Embedding(DIGITS, DIM)
        self.positions = nn.Parameter(torch.randn(LENGTH, DIM))
        layers = [build_layer() for _ in range(LAYERS)]
        self.layers = nn.ModuleList(layers)
        for number, layer in enumerate(layers):
            layer.place(number, first_block=number)
        self.scheme: nn.Module = build_scheme(choice, LAYERS, layers[0].kinds, DIM)
        self.output = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIGITS))

    def forward(self, digits: Tensor) -> Tensor:
        """[B, T] -> [B, T, digits]"""
        context = Context({SubLayerKind.SELF_ATTENTION: attention_mask(LENGTH, LENGTH, digits.device)})
        y = self.embed(digits) + self.positions
        state = self.scheme.start(y)  # type: ignore[operator]
        for layer in self.layers:
            assert isinstance(layer, Layer)
            y, state = layer(y, state, context, self.scheme)
        return self.output(y)


def main(steps: int = 61) -> None:
    torch.manual_seed(0)
    model = Encoder(DepthChoice("rk2", coefficients="gate"))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        digits = torch.randint(DIGITS, (64, LENGTH))
        target = digits.flip(1)
        logits = model(digits)
        loss = cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            accuracy = (logits.argmax(-1) == target).float().mean()
            print(f"step {step:3}  loss {loss:.3f}  right digits {accuracy:4.0%}")


if __name__ == "__main__":
    main()
