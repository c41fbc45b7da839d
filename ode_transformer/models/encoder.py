"""Encoder: fairseq's embedding and interface around a depth scheme."""

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn

from ode_transformer.models.depth_stack import DepthStack, seen_padding
from ode_transformer.models.layers import build_layer
from ode_transformer.nn import Context, Layer, SubLayerKind, WordDropout, attention_mask, equal_runs, select_entries


class ODETransformerEncoder(DepthStack, TransformerEncoderBase):
    """Encoder that steps the embedded source through its layers by the scheme of the options."""

    stack = "encoder"

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.build_depth(cfg)
        self.word_dropout = WordDropout(cfg.word_dropout_prob)

    def build_encoder_layer(self, cfg: TransformerConfig) -> Layer:
        return build_layer(cfg, "encoder")

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode a batch; the result has the keys of fairseq's encoders.

        :param src_tokens: [B, S]
        :param return_all_hiddens: also return the input of each layer and the output of the last, ``encoder_states``
        :param token_embeddings: [B, S, C] in place of those of ``src_tokens``
        """
        padding = src_tokens.eq(self.padding_idx)
        if token_embeddings is None:
            token_embeddings = self.word_dropout(self.embed_tokens(src_tokens))
        y0, embedding = self.forward_embedding(src_tokens, token_embeddings)  # [B, S, C] each
        y0 = y0.masked_fill(padding.unsqueeze(-1), 0)
        length, choice = src_tokens.size(1), self.choice.attention
        mask = attention_mask(length, length, y0.device, seen_padding(padding), choice=choice, dtype=y0.dtype)
        context = Context({SubLayerKind.SELF_ATTENTION: mask}, padding=padding)
        y, states = self.step_layers(y0, context)
        if self.layer_norm is not None:
            y = self.layer_norm(y)
        return {
            "encoder_out": [y.transpose(0, 1)],  # [S, B, C]
            "encoder_padding_mask": [padding],  # [B, S]
            "encoder_embedding": [embedding],  # [B, S, C]
            "encoder_states": [x.transpose(0, 1) for x in states] if return_all_hiddens else [],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [src_tokens.ne(self.padding_idx).sum(dim=1, keepdim=True).int()],  # [B, 1]
        }

    def reorder_encoder_out(self, encoder_out: dict[str, list[Any]], new_order: Tensor) -> dict[str, list[Any]]:
        """Select rows as fairseq's encoders do, but keep once what k rows in turn share, as the hypotheses of a beam.

        The result's tensors then have B/k rows, which the decoder accepts; its entry ``rows_per_entry`` is k.
        """
        rows_per_entry, count = encoder_out.get("rows_per_entry", [1])[0], encoder_out["encoder_out"][0].size(1)
        entries, k = equal_runs(new_order // rows_per_entry, count)
        batch_axes = {"encoder_out": 1, "encoder_states": 1}
        selected = {
            name: [select_entries(x, entries, batch_axes.get(name, 0)) for x in tensors]
            for name, tensors in encoder_out.items()
            if name not in ("fc_results", "rows_per_entry")
        }
        return {"fc_results": [], **selected, "rows_per_entry": [k]}
