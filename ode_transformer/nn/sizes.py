"""Sizes of a Transformer: plain data that says what a model is built of, beside the depth choice of each stack."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ode_transformer.nn.options import Choice, option

# Numbers of the special symbols, which stand before the words in each of fairseq's dictionaries
BEGIN, PADDING, END, UNKNOWN = range(4)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_accurate": lambda x: F.gelu(x, approximate="tanh"),
    "swish": F.silu,
    "tanh": torch.tanh,
    "linear": lambda x: x,
}
POSITIONS = ("sinusoidal", "learned", "none")
SHARES = ("none", "output", "all")


@dataclass(frozen=True)
class StackSizes:
    """Sizes of one stack.

    :param dim: width of its layers
    :param positions: one of ``POSITIONS``
    :param max_positions: tokens of the longest text that it takes
    """

    dim: int
    heads: int
    ffn: int
    layers: int
    positions: str
    max_positions: int


@dataclass(frozen=True)
class TransformerSizes:
    """Sizes of an encoder–decoder, or of a language model, which has a decoder alone.

    :param vocabulary: words of the source, with the special symbols ``PADDING`` and ``END``
    :param target_vocabulary: words of the target; those of the source by default
    :param dim: width of the layers; ``heads`` and ``ffn``, the inner width of feed-forward networks, likewise
    :param decoder_dim: width of the decoder's layers if it is another; ``decoder_heads`` and ``decoder_ffn`` likewise
    :param decoder_input_dim: width of the target's embeddings if it is another than the decoder's
    :param decoder_output_dim: width of the features that the output reads, likewise
    :param share: which embeddings are one matrix: ``none``, those of target and ``output``, or ``all`` three
    :param activation: of feed-forward networks, one of ``ACTIVATIONS``
    :param dropout: of embeddings and increments; others are of attention weights, inner layers and whole words
    :param encoder_positions: absolute positions, one of ``POSITIONS``; ``decoder_positions`` likewise
    :param scale_embedding: multiply embeddings by the square root of their width
    :param normalize_embedding: normalise what the first layer reads
    :param final_norm: a pre-norm decoder ends with a normalisation
    :param left_padded: padding of targets is on their left
    :param recompute: training keeps the states between layers alone, and computes layers again (``steps``, not stages)
    :raises ValueError: a size is out of range; says which
    """

    vocabulary: int
    target_vocabulary: int | None = None
    dim: int = 512
    heads: int = 8
    ffn: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    decoder_dim: int | None = None
    decoder_heads: int | None = None
    decoder_ffn: int | None = None
    decoder_input_dim: int | None = None
    decoder_output_dim: int | None = None
    share: str = "none"
    activation: str = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    word_dropout: float = 0.0
    encoder_positions: str = "sinusoidal"
    decoder_positions: str = "sinusoidal"
    max_source_positions: int = 1024
    max_target_positions: int = 1024
    scale_embedding: bool = True
    normalize_embedding: bool = False
    final_norm: bool = True
    left_padded: bool = False
    recompute: bool = False

    def __post_init__(self) -> None:
        for name, values in (("share", SHARES), ("activation", tuple(ACTIVATIONS))):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} {getattr(self, name)}: not one of {', '.join(values)}")
        for name in ("encoder_positions", "decoder_positions"):
            if getattr(self, name) not in POSITIONS:
                raise ValueError(f"{name} {getattr(self, name)}: not one of {', '.join(POSITIONS)}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{flag} {getattr(self, name)}: a fraction from 0 up to 1, without 1")
        if self.share == "all" and (self.target_words != self.vocabulary or self.target_dim != self.dim):
            raise ValueError("share all: source and target have other vocabularies or widths")
        if self.share != "none" and self.target_dim != self.output_dim:
            raise ValueError(
                f"share {self.share}: embeddings and output have widths {self.target_dim}, {self.output_dim}"
            )

    @property
    def encoder(self) -> StackSizes:
        """Sizes of the encoder."""
        sizes = self.dim, self.heads, self.ffn, self.encoder_layers
        return StackSizes(*sizes, self.encoder_positions, self.max_source_positions)

    @property
    def decoder(self) -> StackSizes:
        """Sizes of the decoder."""
        sizes = (self.decoder_dim or self.dim, self.decoder_heads or self.heads, self.decoder_ffn or self.ffn)
        return StackSizes(*sizes, self.decoder_layers, self.decoder_positions, self.max_target_positions)

    @property
    def target_words(self) -> int:
        """Number of words of the target."""
        return self.target_vocabulary or self.vocabulary

    @property
    def target_dim(self) -> int:
        """Width of the target's embeddings."""
        return self.decoder_input_dim or self.decoder.dim

    @property
    def output_dim(self) -> int:
        """Width of the features from which the output computes the scores of words."""
        return self.decoder_output_dim or self.decoder.dim


@dataclass(frozen=True)
class GridChoice(Choice):
    """Options of a Reformer's source × target grid.

    The factor √E of Eq. 4 has two places. paper: embeddings and positions, (embed + pos)·√E. released: the embeddings
    alone, √E·embed + pos; then the PreNet's output has positions only through its input.
    """

    flag_prefix: ClassVar[str] = "joint-"

    input: str = option(
        "released",
        "paper: (embedding + position)·√E; released: √E·embedding + position",
        values=lambda: ("released", "paper"),
        own_flag_only=True,
    )
    combination: str = option(
        "add",
        "how a source and a target position make a position of the grid",
        values=lambda: ("add", "concat"),
        own_flag_only=True,
    )
    reduction: str = option(
        "softmax",
        "how the source axis is reduced after the last layer",
        values=lambda: ("softmax", "max"),
        own_flag_only=True,
    )
    dropout: str = option(
        "shared",
        "noise: shared along axes (Dropout1d, 2d) or for each element",
        values=lambda: ("shared", "independent"),
        own_flag_only=True,
    )
    max_cells: int = option(
        0,
        "positions of the grid in memory at one time; a larger batch is divided; 0 for no limit",
        another=30,
        interval="non-negative",
        flag="max-joint-cells",
        own_flag_only=True,
    )
