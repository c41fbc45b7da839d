"""Encoder of BERT with segments, and the head that predicts masked words. Axes: B batch, S positions, C channels."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.encoder import Encoder
from ode_transformer.nn.sizes import ACTIVATIONS, END, TransformerSizes

SEGMENTS = 2


def segments(tokens: Tensor, separator: int = END) -> Tensor:
    """Return the segment of each position: the number of separators before it, at most 1.

    ``<s> A </s> B </s>`` is 0 0 0 1 1, and so is RoBERTa's ``<s> A </s> </s> B </s>`` from its second separator on.

    :param tokens: [B, S], as the result
    """
    separators = tokens.eq(separator).long()
    return (separators.cumsum(dim=1) - separators).clamp(max=SEGMENTS - 1)


class SegmentEncoder(Encoder):
    """Encoder that adds the embedding of its segment to each word's embedding, as BERT does.

    :param affine: False: no layer normalisation scales and shifts, as in the released Macaron
    """

    def __init__(
        self, sizes: TransformerSizes, choice: DepthChoice, embed_tokens: nn.Embedding, affine: bool = True
    ) -> None:
        super().__init__(sizes, choice, embed_tokens)
        self.embed_segments = nn.Embedding(SEGMENTS, embed_tokens.embedding_dim)
        for module in self.modules() if not affine else ():
            if isinstance(module, nn.LayerNorm):
                module.elementwise_affine = False
                module.register_parameter("weight", None)
                module.register_parameter("bias", None)

    def embed_words(self, tokens: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Return the scaled embeddings of words and segments, [B, S] -> [B, S, C]; see :meth:`Stack.embed_words`."""
        words = self.word_dropout(self.embed_tokens(tokens)) if vectors is None else vectors
        return super().embed_words(tokens, words + self.embed_segments(segments(tokens)))


class MaskedWordHead(nn.Module):
    """Scores of words from features, by the embeddings of the words: W_e LN(act(W y + b)) + b_e."""

    def __init__(self, dim: int, embedding: Tensor, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.activation = ACTIVATIONS[activation]
        self.layer_norm = nn.LayerNorm(dim)
        self.weight = embedding
        self.bias = nn.Parameter(torch.zeros(len(embedding)))

    def forward(self, features: Tensor) -> Tensor:
        """[.., C] -> [.., words]"""
        return linear(self.layer_norm(self.activation(self.dense(features))), self.weight, self.bias)


class MaskedEncoder(nn.Module):
    """Encoder with its head, under the names of fairseq's RoBERTa."""

    def __init__(
        self, sizes: TransformerSizes, choice: DepthChoice, embed_tokens: nn.Embedding, affine: bool = True
    ) -> None:
        super().__init__()
        self.sentence_encoder = SegmentEncoder(sizes, choice, embed_tokens, affine)
        self.lm_head = MaskedWordHead(sizes.dim, embed_tokens.weight, sizes.activation)

    def forward(self, text: Tensor) -> Tensor:
        """[B, S] -> [B, S, words]"""
        scores: Tensor = self.lm_head(self.sentence_encoder(text).output)
        return scores
