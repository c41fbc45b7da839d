"""Train a Transformer of this package in a plain PyTorch program, without fairseq.

    python examples/plain_pytorch.py

learns to reverse sequences of digits with RK2 layers and learned stage weights, and prints the falling loss:

    step   0  loss 3.005  right digits   7%
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ode_transformer.nn import END, DepthChoice, Transformer, TransformerSizes

FIRST, DIGITS, LENGTH = 4, 10, 8  # numbers 0 to 3 are special symbols


def texts(count: int) -> Tensor:
    """Return random digits with their end, [count, LENGTH + 1]."""
    digits = torch.randint(FIRST, FIRST + DIGITS, (count, LENGTH))
    return torch.cat([digits, torch.full((count, 1), END)], dim=1)


def main(steps: int = 151) -> None:
    torch.manual_seed(0)
    sizes = TransformerSizes(
        vocabulary=FIRST + DIGITS, dim=32, heads=4, ffn=64, encoder_layers=2, decoder_layers=2, dropout=0.0
    )
    model = Transformer(sizes, encoder=DepthChoice("rk2", coefficients="gate"))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        source = texts(64)
        target = torch.cat([source[:, :-1].flip(1), source[:, -1:]], dim=1)
        scores = model(source, target.roll(1, dims=1))  # the end symbol begins the target
        loss = cross_entropy(scores.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            accuracy = (scores.argmax(-1) == target).float().mean()
            print(f"step {step:3}  loss {loss:.3f}  right digits {accuracy:4.0%}")
    source = texts(1)
    print(f"{source[0].tolist()} reversed: {model.generate(source, beam=4, max_words=LENGTH)[0].tolist()}")


if __name__ == "__main__":
    main()
