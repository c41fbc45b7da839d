"""The encoder: fairseq's embedding and interface around a depth scheme."""

from __future__ import annotations

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn

from ode_transformer.modules.depth import depth_choice, through_depth
from ode_transformer.modules.layers import encoder_layer
from ode_transformer.nn import Layer, WordDropout, attention_pattern, build_scheme


class ODETransformerEncoder(TransformerEncoderBase):
    """Embeds the source and moves it through the layers by the scheme of the options."""

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.scheme = build_scheme(depth_choice(cfg, "encoder"), self.num_layers, cfg.encoder.embed_dim)
        self.word_dropout = WordDropout(cfg.word_dropout_prob)

    def build_encoder_layer(self, cfg: TransformerConfig) -> Layer:
        return encoder_layer(cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encodes a batch; the result has the keys of fairseq's encoders.

        :param src_tokens: [B, S]
        :param return_all_hiddens: also return what each layer read, ``encoder_states``
        :param token_embeddings: [B, S, C] in place of the lookup
        """
        padding = src_tokens.eq(self.padding_idx)
        if token_embeddings is None:
            token_embeddings = self.word_dropout(self.embed_tokens(src_tokens))
        y0, embedding = self.forward_embedding(src_tokens, token_embeddings)
        y0 = y0.masked_fill(padding.unsqueeze(-1), 0)
        length = src_tokens.size(1)
        pattern = attention_pattern(
            length,
            length,
            src_tokens.device,
            padding_mask=padding if padding.any() else None,
            clip=self.cfg.max_relative_positions,
        )
        inputs = {"self_attn": {"pattern": pattern}}
        recompute = self.cfg.checkpoint_activations and self.training
        y, passed = through_depth(self.scheme, self.layers, y0, lambda layer, evaluation: inputs, recompute)
        if self.layer_norm is not None:
            y = self.layer_norm(y)
        return {
            "encoder_out": [y.transpose(0, 1)],  # S x B x C
            "encoder_padding_mask": [padding],  # B x S
            "encoder_embedding": [embedding],  # B x S x C
            "encoder_states": [x.transpose(0, 1) for x in passed] if return_all_hiddens else [],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [src_tokens.ne(self.padding_idx).sum(dim=1, keepdim=True).int()],  # B x 1
        }

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        return state_dict  # there are no older layouts of these layers to upgrade from
