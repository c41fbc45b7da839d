"""Reformer (Li et al. 2020): the source alone, then a source × target grid in place of encoder–decoder attention.

    source    h_s = embed_s (Reformer-base), or the PreNet's output for it (Reformer-fast)
    grid      x_st = h_s + embed_t, with positions and √E as ``joint_input`` says          Eq. 4
    layer     target attention → FFN → source attention → FFN, each x + Block(LN(x))       Figure 2a
    output    Reduction over the source, layer normalisation, projection                   Eq. 6

Axes: B batch, S source, T target, C channels. A grid is [B, S, T, C].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.joint_layers import build_joint_layer
from ode_transformer.nn import (
    AttentionContext,
    KeyValueCache,
    Layer,
    LayerCaches,
    LayerContext,
    Reduction,
    SubLayerKind,
    attention_mask,
    joint_representation,
    joint_width,
    parts_of_batch,
)

# What √E multiplies in Eq. 4. paper: embeddings and positions, (embed + pos)·√E. released: the embeddings alone,
# √E·embed + pos; the PreNet's output then has its positions from its input.
JOINT_INPUTS = ("paper", "released")


class ReformerEncoder(ODETransformerEncoder):
    """The source's part of every cell: its embeddings (no layers), or what the PreNet makes of them."""

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.position_scale = position_scale(cfg, embed_tokens.embedding_dim)
        if not len(self.layers):
            self.layer_norm = None

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Tensor | None = None
    ) -> tuple[Tensor, torch.Tensor]:
        """[B, S] -> [B, S, C] twice: with positions, and the embeddings alone."""
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        embedding = self.embed_scale * token_embedding
        x = embedding + self._positions(src_tokens)
        return self.dropout_module(x if self.layernorm_embedding is None else self.layernorm_embedding(x)), embedding

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """The keys of fairseq's encoders; ``encoder_out`` [S, B, C] is what the source adds to every cell (Eq. 4)."""
        out = super().forward_scriptable(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        if self.cfg.joint_input == "paper" and len(self.layers):
            # The PreNet's output takes the place of embed_s; that of pos_s, and √E, are as they were.
            positions = self._positions(src_tokens)
            out["encoder_out"] = [self.embed_scale * out["encoder_out"][0] + positions.transpose(0, 1)]
        return out

    def _positions(self, src_tokens: Tensor) -> Tensor:
        """[B, S, C], or what broadcasts to it."""
        if self.embed_positions is None:
            return self.embed_tokens.weight.new_zeros(1, 1, 1)
        return self.position_scale * self.embed_positions(src_tokens)


def position_scale(cfg: TransformerConfig, dim: int) -> float:
    """The factor of the positions in Eq. 4, √E in the paper and 1 in the released code."""
    return math.sqrt(dim) if cfg.joint_input == "paper" and not cfg.no_scale_embedding else 1.0


class Pairs(NamedTuple):
    """Sentence pairs, the sides of grids.

    :param source: [B, S, C]
    :param source_padding: [B, S], True at padding
    :param target: [B, T, C], the last positions of
    :param target_padding: [B, T' ≥ T]
    """

    source: Tensor
    source_padding: Tensor
    target: Tensor
    target_padding: Tensor

    @property
    def cells(self) -> int:
        """How many the grids have, padding included."""
        return len(self.source) * self.source.size(1) * self.target.size(1)

    def lengths(self) -> tuple[list[int], list[int]]:
        """Of each source and each target, without padding."""
        source, target = (x.logical_not().sum(dim=1).tolist() for x in (self.source_padding, self.target_padding))
        return source, target

    def rows(self, rows: slice) -> Pairs:
        return Pairs(*(x[rows] for x in self))

    def cut(self, columns: slice, lines: slice) -> Pairs:
        """Some of the source positions and some of the target positions."""
        source, source_padding, target, target_padding = self
        return Pairs(source[:, columns], source_padding[:, columns], target[:, lines], target_padding[:, lines])


# Pairs and caches of decoding -> features [B, T, C] and, if wanted, attention [B, T, S]
Span = Callable[[Pairs, dict[str, KeyValueCache] | None], tuple[Tensor, Tensor | None]]


def real_range(padding: Tensor) -> slice:
    """The positions [B, T] from the first to the last that is not padding in every row."""
    real = padding.all(dim=0).logical_not().nonzero()
    return slice(int(real[0]), int(real[-1]) + 1)


class ReformerDecoder(ODETransformerDecoder):
    """Spans the grid over the encoder's output and the target's prefix, and reduces it to features of the target.

    Decoding step by step, each step adds one target position to every source position: attention over the target reads
    caches [B, S, H, T, C/H], attention over the source and the reduction read the new line alone.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: nn.Module | None = None,
    ) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.position_scale = position_scale(cfg, embed_tokens.embedding_dim)
        width = joint_width(cfg.encoder.embed_dim, self.embed_dim, cfg.joint_combination)
        pre_norm = cfg.decoder.normalize_before
        self.reduction = Reduction(width, cfg.joint_reduction, pre_norm)
        if width != self.embed_dim:
            self.layer_norm = nn.LayerNorm(width) if self.layer_norm is not None else None
            self.project_out_dim = nn.Linear(width, self.output_embed_dim, bias=False)
            nn.init.xavier_uniform_(self.project_out_dim.weight)

    def choose_depth(self, cfg: TransformerConfig, stack: str, *_: Any) -> None:
        """As for every stack, of the grid's width."""
        width = joint_width(cfg.encoder.embed_dim, cfg.decoder.embed_dim, cfg.joint_combination)
        super().choose_depth(cfg, stack, width, {"joint_input": cfg.joint_input})

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> Layer:
        return build_joint_layer(cfg)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Any]]]:
        """Features of the target positions, of the last one alone when decoding step by step.

        :param prev_output_tokens: [B, T]
        :param encoder_out: what the encoder returned
        :param incremental_state: fairseq's decoding cache, updated in place
        :param full_context_alignment: let positions see later ones
        :param alignment_layer: none to choose from: the reduction tells how much each source position gives
        :param alignment_heads: likewise
        :returns: features [B, T, C]; ``attn`` [B, T, S] where asked for or not training, ``inner_states`` [T, B, C]
        :raises ValueError: in training, if a pair by itself has more cells than are allowed
        """
        pairs = Pairs(
            encoder_out["encoder_out"][0].transpose(0, 1).contiguous(),  # as the grid is to lie in memory
            encoder_out["encoder_padding_mask"][0],
            self._embed(prev_output_tokens, incremental_state),
            prev_output_tokens.eq(self.padding_idx),
        )
        wanted = alignment_layer is not None or not self.training
        span = partial(self._span, causal=not full_context_alignment, wanted=wanted)
        caches = self._caches(incremental_state)
        # A step of decoding makes one line of cells, small beside its caches: there is nothing to divide.
        whole = caches is not None or self.needs_whole_batch
        if whole or not self.cfg.max_joint_cells or pairs.cells <= self.cfg.max_joint_cells:
            y, attention = span(pairs, caches)
        else:
            y, attention = self._by_parts(span, pairs)
        if self.layer_norm is not None:
            y = self.layer_norm(y)
        if self.project_out_dim is not None:
            y = self.project_out_dim(y)
        return y, {"attn": [attention], "inner_states": [y.transpose(0, 1)]}

    def _by_parts(self, span: Span, pairs: Pairs) -> tuple[Tensor, Tensor | None]:
        """Spans the grids of some rows after those of others; training computes each again in the backward pass.

        What is alive at one time is the grids of one part, cut to its longest sentences. The rows do not know of one
        another, so that only the order of sums changes.
        """
        lengths = pairs.lengths()
        self._refuse_large_pairs(*lengths)
        made = []
        for rows in parts_of_batch(*lengths, self.cfg.max_joint_cells):
            part = pairs.rows(rows)
            columns, lines = real_range(part.source_padding), real_range(part.target_padding)
            part = part.cut(columns, lines)
            if torch.is_grad_enabled():
                y, attention = checkpoint(span, part, None, use_reentrant=False)
            else:
                y, attention = span(part, None)
            after = pairs.target.size(1) - lines.stop
            if attention is not None:
                sides = columns.start, pairs.source.size(1) - columns.stop
                attention = pad(attention, (*sides, lines.start, after))
            made.append((pad(y, (0, 0, lines.start, after)), attention))
        return _joined(made)

    def _refuse_large_pairs(self, source: list[int], target: list[int]) -> None:
        largest = max(s * t for s, t in zip(source, target, strict=True))
        if self.training and largest > self.cfg.max_joint_cells:
            raise ValueError(
                f"a sentence pair has {largest:,} cells, more than --max-joint-cells {self.cfg.max_joint_cells}: raise "
                f"it, or leave such pairs out by --task joint_translation --joint-cells-overflow skip"
            )

    def _span(
        self, pairs: Pairs, caches: dict[str, KeyValueCache] | None, causal: bool, wanted: bool
    ) -> tuple[Tensor, Tensor | None]:
        """From the two sequences through their grid to one: features [B, T, C] and, if wanted, attention [B, T, S]."""
        source, source_padding, target, target_padding = pairs
        device, choice = source.device, self.choice.attention
        # To the right of a position, causality hides padding already.
        hides = target_padding[:, 0] if causal else target_padding
        target_mask = attention_mask(
            target.size(1),
            target_padding.size(1),
            device,
            padding_mask=target_padding[:, None] if hides.any() else None,
            causal=causal,
            choice=choice,
        )
        source_mask = attention_mask(
            source.size(1),
            source.size(1),
            device,
            padding_mask=source_padding[:, None] if source_padding.any() else None,
            choice=choice,
        )

        def context(layer: int) -> LayerContext:
            layer_caches = None if caches is None else LayerCaches(caches, layer)
            return {
                SubLayerKind.TARGET_ATTENTION: AttentionContext(target_mask, caches=layer_caches),
                # The new line of cells attends within itself: there is nothing to cache.
                SubLayerKind.SOURCE_ATTENTION: AttentionContext(source_mask),
            }

        grid = joint_representation(source, target, self.cfg.joint_combination)
        padding = source_padding[:, :, None] | target_padding[:, None, -target.size(1) :]
        y, _ = self.step_layers(grid, [context(layer) for layer in range(self.num_layers)], padding)
        weights: list[Tensor] = []
        y = self.reduction(y, source_padding, weights if wanted else None)
        return y, weights[0] if wanted else None


def _joined(parts: list[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """Features and attention of all rows."""
    attention = [weights for _, weights in parts if weights is not None]
    return torch.cat([features for features, _ in parts]), torch.cat(attention) if attention else None
