"""Decoder: fairseq's embedding, output and incremental interface around a depth scheme."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from fairseq import utils
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from torch import Tensor, nn

from ode_transformer.models.depth_stack import DepthStack, seen_padding
from ode_transformer.models.layers import build_layer
from ode_transformer.nn import (
    FIXED_STEP,
    ROWS_STAY,
    AttentionMask,
    Caches,
    Context,
    FixedCache,
    FixedStep,
    KeyValueCache,
    Layer,
    StepMasks,
    SubLayerKind,
    WordDropout,
    attention_mask,
    linear_map,
)

_ROOM = 64  # positions by which the table of a search grows


class ODETransformerDecoder(DepthStack, TransformerDecoderBase):
    """Decoder that steps the embedded target prefix through its layers by the scheme of the options.

    With ``no_encoder_attn`` it is a language model, whose layers attend to no encoder output. In step-by-step decoding
    each evaluation of a layer's self-attention has a cache of its own: a stage attends to earlier positions of the
    same stage.
    """

    stack = "decoder"
    position_scale = 1.0
    computes_fixed_steps = True  # a search may use ``FixedStep``

    def __init__(
        self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding, no_encoder_attn: bool = False
    ) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)
        self.build_depth(cfg)
        self.word_dropout = WordDropout(cfg.word_dropout_prob)
        self.heads = int(cfg.decoder.attention_heads)
        self.left_padded = utils.eval_bool(getattr(cfg, "left_pad_target", False))
        self.reports_alignment = True

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> Layer:
        return build_layer(cfg, "decoder", cross_attention=not no_encoder_attn)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Any]]]:
        """Compute the features of the target positions, only of the last one in step-by-step decoding.

        :param prev_output_tokens: [B, T]
        :param incremental_state: fairseq's decoding cache, updated in place; with a :class:`FixedStep`,
            ``prev_output_tokens`` are its tokens
        :param alignment_layer: layer whose attention over the source is returned, the last by default
        :param alignment_heads: number of heads to average, all by default
        :returns: features [B, T, C]; ``attn`` [B, T, S], but not in training, nor in decoding that was prepared without
            it, unless it is requested; ``inner_states`` [T, B, C] each
        """
        y0 = self._embed(prev_output_tokens, incremental_state)  # [B, T, C]
        aligned = self.num_layers - 1 if alignment_layer is None else alignment_layer
        reported = not self.training and (self.reports_alignment or incremental_state is None)
        reported |= alignment_layer is not None
        weights: list[Tensor] = []
        requested = {(aligned, SubLayerKind.CROSS_ATTENTION): weights} if reported else {}
        if incremental_state is None:
            context = self._context(prev_output_tokens, encoder_out, not full_context_alignment, requested, y0.dtype)
        else:
            context = self._step_context(prev_output_tokens, encoder_out, incremental_state, requested)
        y, states = self.step_layers(y0, context)
        if self.layer_norm is not None:
            y = self.layer_norm(y)
        attention = weights[-1][:, :alignment_heads].mean(dim=1) if weights else None  # [B, T, S]
        if self.project_out_dim is not None:
            y = self.project_out_dim(y)
        return y, {"attn": [attention], "inner_states": [x.transpose(0, 1) for x in states]}

    def make_generation_fast_(self, need_attn: bool | str | None = True, **_: Any) -> None:
        """Prepare for decoding; fairseq calls this on every module."""
        self.reports_alignment = bool(need_attn)

    def output_layer(self, features: Tensor) -> Tensor:
        """Return the scores of the words, [B, T, words], or the features themselves for an adaptive softmax."""
        projection = self.output_projection
        if type(projection) is not nn.Linear:  # fairseq's own, whose weights may be those of the embeddings
            return super().output_layer(features)
        return linear_map(features, projection.weight, projection.bias)

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: dict[str, Any] | None = None
    ) -> Tensor:
        """Return the probabilities [B, T, words] from which a criterion computes the loss."""
        probabilities = super().get_normalized_probs(net_output, log_probs, sample)
        if log_probs and self.see_log_probabilities is not None:
            self.see_log_probabilities(probabilities)
        return probabilities

    def _embed(self, prev_output_tokens: Tensor, incremental_state: dict[str, Any] | None) -> Tensor:
        positions = None
        if self.embed_positions is not None:
            if incremental_state is None:
                positions = self.embed_positions(prev_output_tokens)  # [B, T, C]
            else:
                positions = self._position(prev_output_tokens, incremental_state)  # [1, 1, C]
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
        x = self.embed_scale * self.word_dropout(self.embed_tokens(prev_output_tokens))  # [B, T, C]
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = torch.add(x, positions, alpha=self.position_scale)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _context(
        self,
        tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        causal: bool,
        weights: Mapping[tuple[int, SubLayerKind], list[Tensor]],
        dtype: torch.dtype,
    ) -> Context:
        """Return what all layers read; ``weights`` are lists for attention weights, by layer and kind."""
        length, device, choice = tokens.size(1), tokens.device, self.choice.attention
        padding = tokens.eq(self.padding_idx)  # [B, T]
        seen = seen_padding(padding, causal, self.left_padded)
        masks = {SubLayerKind.SELF_ATTENTION: attention_mask(length, length, device, seen, causal, choice, dtype)}
        source, source_padding = self._source(encoder_out)
        if source is not None:
            if source_padding is not None and len(source) < len(tokens):  # of ``reorder_encoder_out``
                rows = len(tokens) // len(source)
                source, source_padding = (x.repeat_interleave(rows, 0) for x in (source, source_padding))
            seen = None if source_padding is None else seen_padding(source_padding)
            masks[SubLayerKind.CROSS_ATTENTION] = attention_mask(length, source.size(1), device, seen, dtype=dtype)
        return Context(masks, source, padding, weights=weights)

    def _step_context(
        self,
        tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, Any],
        weights: Mapping[tuple[int, SubLayerKind], list[Tensor]],
    ) -> Context:
        """Return what all layers read at the last position of a search; ``tokens`` are all so far."""
        step: FixedStep | None = incremental_state.get(FIXED_STEP)
        # A recorded step reads padding that other batches overwrite: it makes the masks itself.
        build_masks = partial(StepMasks, self.heads)
        masks: StepMasks = build_masks() if step else self._search_state(incremental_state, "masks", build_masks)
        padding = None if ROWS_STAY in incremental_state else seen_padding(tokens.eq(self.padding_idx))
        choice, length = self.choice.attention, tokens.size(1)
        self_mask = masks.over_target(length, tokens.device, padding, choice) if step is None else step.mask(choice)
        masks_by_kind: dict[SubLayerKind, AttentionMask] = {SubLayerKind.SELF_ATTENTION: self_mask}
        source, source_padding = self._source(encoder_out)
        if source is not None:
            masks_by_kind[SubLayerKind.CROSS_ATTENTION] = masks.over_source(source_padding)
        build = KeyValueCache if step is None else partial(FixedCache, step)
        caches = self._caches(incremental_state)
        return Context(masks_by_kind, source, caches=caches, build_cache=build, weights=weights)

    def _source(self, encoder_out: dict[str, list[Tensor]] | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the encoder output [B, S, C] and its padding [B, S], if there are any."""
        if encoder_out is None:
            return None, None
        padding = next(iter(encoder_out["encoder_padding_mask"]), None)
        return encoder_out["encoder_out"][0].transpose(0, 1), padding

    def _position(self, prev_output_tokens: Tensor, incremental_state: dict[str, Any]) -> Tensor:
        """Return the embedding of the last position in a search, [1, 1, C], from a table of many positions."""
        step: FixedStep | None = incremental_state.get(FIXED_STEP)
        length = prev_output_tokens.size(1)
        most = max(length, self.max_target_positions)
        room = min(-(-length // _ROOM) * _ROOM, most) if step is None else step.capacity

        def embed_all() -> Tensor:
            return self.embed_positions(prev_output_tokens.new_full((1, room), self.padding_idx + 1))  # [1, room, C]

        table: Tensor = self._search_state(incremental_state, f"positions.{room}", embed_all)
        return table[:, length - 1 : length] if step is None else table.index_select(1, step.position)

    def _caches(self, incremental_state: dict[str, Any]) -> Caches:
        return self._search_state(incremental_state, "caches", Caches)

    def _search_state(self, incremental_state: dict[str, Any], name: str, build: Callable[[], Any]) -> Any:
        """Return what the decoder keeps under a name during a search; the first call builds it."""
        key = self._get_full_incremental_state_key(name)
        if key not in incremental_state:
            incremental_state[key] = build()
        return incremental_state[key]

    @torch.no_grad()
    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Reorder all caches in place to the rows ``new_order`` that beam search has chosen."""
        self._caches(incremental_state).reorder(new_order, incremental_state.get(ROWS_STAY, False))

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Reorder all caches; fairseq's own method looks for them in every module, at each step."""
        self.reorder_incremental_state(incremental_state, new_order)
