"""Encoder of one or two texts with segment embeddings."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from ode_transformer.models.encoder import ODETransformerEncoder

SEGMENTS = 2


def segments(tokens: Tensor, separator: int) -> Tensor:
    """Return the segment of each position: the number of separators before it, at most 1.

    ``<s> A </s> B </s>`` is 0 0 0 1 1, and so is RoBERTa's ``<s> A </s> </s> B </s>`` from its second separator on.

    :param tokens: [B, S]
    :param separator: index of ``</s>``
    :returns: [B, S]
    """
    separators = tokens.eq(separator).long()
    return (separators.cumsum(dim=1) - separators).clamp(max=SEGMENTS - 1)


class SegmentEncoder(ODETransformerEncoder):
    """Encoder that adds the embedding of its segment to each word's embedding, as BERT does.

    :param cfg: with ``layer_norm_without_affine``, no layer normalisation scales and shifts, as in the released Macaron
    """

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = dictionary.eos()
        self.embed_segments = nn.Embedding(SEGMENTS, embed_tokens.embedding_dim)
        if cfg.layer_norm_without_affine:
            for module in self.modules():
                if isinstance(module, nn.LayerNorm):
                    module.elementwise_affine = False
                    module.register_parameter("weight", None)
                    module.register_parameter("bias", None)

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Tensor | None = None
    ) -> tuple[Tensor, torch.Tensor]:
        """Return the input of the layers, and the embeddings of words and segments alone, [B, S] -> [B, S, C] each."""
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        segment_embedding = self.embed_segments(segments(src_tokens, self.separator))
        return super().forward_embedding(src_tokens, token_embedding + segment_embedding)
