"""Reformer (Li et al. 2020): an encoder of the source, then a source × target grid in place of cross-attention.

    source    h_s = embed_s (Reformer-base), or the PreNet's output (Reformer-fast)
    grid      x_st = h_s + embed_t, positions and √E according to ``joint_input``          Eq. 4
    layer     target attention → FFN → source attention → FFN, each x + Block(LN(x))       Figure 2a
    output    Reduction over the source, layer normalisation, projection                   Eq. 6

Axes: B batch, S source, T target, C channels. A grid is [B, S, T, C].
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import mul
from typing import Any, NamedTuple

import torch
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from ode_transformer.models.decoder import ODETransformerDecoder
from ode_transformer.models.depth_stack import seen_padding
from ode_transformer.models.encoder import ODETransformerEncoder
from ode_transformer.models.layers import build_joint_layer
from ode_transformer.nn import (
    Cache,
    Context,
    Layer,
    Linear,
    Reduction,
    StepMasks,
    SubLayerKind,
    attention_mask,
    joint_representation,
    joint_width,
    parts_of_batch,
)
from ode_transformer.speed.recording import is_recording
from ode_transformer.support.errors import OptionError

# Factor √E in Eq. 4. paper: embeddings and positions, (embed + pos)·√E. released: the embeddings alone, √E·embed + pos;
# then the PreNet's output has positions only through its input.
JOINT_INPUTS = ("paper", "released")


class ReformerEncoder(ODETransformerEncoder):
    """Encoder of the source part of every position: embeddings (no layers), or the output of the PreNet."""

    # Cells belong to one hypothesis each: rows share nothing.
    reorder_encoder_out = TransformerEncoderBase.reorder_encoder_out

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.position_scale = position_scale(cfg, embed_tokens.embedding_dim)
        if not len(self.layers):
            self.layer_norm = None

    def forward_embedding(self, src_tokens: Tensor, token_embedding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the embeddings with positions, and the embeddings alone, [B, S] -> [B, S, C] each."""
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        embedding = self.embed_scale * token_embedding
        x = embedding + self._positions(src_tokens)
        return self.dropout_module(x if self.layernorm_embedding is None else self.layernorm_embedding(x)), embedding

    def forward_scriptable(self, src_tokens: Tensor, *arguments: Any, **options: Any) -> dict[str, list[Tensor]]:
        """Encode a batch; ``encoder_out`` [S, B, C] is the source part of every position (Eq. 4)."""
        out = super().forward_scriptable(src_tokens, *arguments, **options)
        if self.cfg.joint_input == "paper" and len(self.layers):
            # The PreNet's output replaces embed_s; pos_s and √E stay.
            positions = self._positions(src_tokens)
            out["encoder_out"] = [self.embed_scale * out["encoder_out"][0] + positions.transpose(0, 1)]
        return out

    def _positions(self, src_tokens: Tensor) -> Tensor:
        """Return the positions [B, S, C], or zeros that broadcast to it."""
        if self.embed_positions is None:
            return self.embed_tokens.weight.new_zeros(1, 1, 1)
        return self.position_scale * self.embed_positions(src_tokens)


def position_scale(cfg: TransformerConfig, dim: int) -> float:
    """Return the factor of the positions in Eq. 4, √E in the paper and 1 in the released code."""
    return math.sqrt(dim) if cfg.joint_input == "paper" and not cfg.no_scale_embedding else 1.0


class Pairs(NamedTuple):
    """Batch of sentence pairs, the two sides of a grid.

    :param source: [B, S, C]
    :param source_padding: [B, S], True at padding
    :param target: [B, T, C], the last T positions of the target
    :param target_padding: [B, T'], T' ≥ T, True at padding
    """

    source: Tensor
    source_padding: Tensor
    target: Tensor
    target_padding: Tensor

    def part(self, rows: slice, source_range: slice, target_range: slice) -> "Pairs":
        """Return some rows of the batch, and of these some of the positions."""
        source = (tensor[rows, source_range] for tensor in (self.source, self.source_padding))
        target = (tensor[rows, target_range] for tensor in (self.target, self.target_padding))
        return Pairs(*source, *target)


# Computes a grid: pairs and caches of decoding -> features [B, T, C] and, if reported, attention [B, T, S]
ComputeGrid = Callable[[Pairs, dict[str, Cache] | None], tuple[Tensor, Tensor | None]]


def _lengths(padding: Tensor) -> list[int]:
    """Return the length of each text of a batch, [B, T], without its padding, which nobody may see in a recording."""
    return [padding.size(1)] * len(padding) if is_recording() else padding.logical_not().sum(dim=1).tolist()


def _real_range(padding: Tensor) -> slice:
    """Return the range of positions of [B, T] without those at both ends that are padding in every row, at least 1."""
    if is_recording():
        return slice(0, padding.size(1))
    positions = padding.all(dim=0).logical_not().nonzero()
    if not len(positions):  # rows that a batch has been padded by
        return slice(0, 1)
    return slice(int(positions[0]), int(positions[-1]) + 1)


class ReformerDecoder(ODETransformerDecoder):
    """Decoder that steps a grid of encoder output × target prefix through its layers and reduces it to the target.

    In step-by-step decoding each step adds one target position to every source position: attention over the target
    reads caches [B, S, H, T, C/H]; attention over the source and the reduction read only the new line of positions.
    """

    fixed_options = ("joint_input",)
    computes_fixed_steps = False  # most of a grid with room for more positions would be masked

    def __init__(self, cfg: TransformerConfig, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.position_scale = position_scale(cfg, embed_tokens.embedding_dim)
        width = self.layer_width(cfg)
        self.reduction = Reduction(width, cfg.joint_reduction, cfg.decoder.normalize_before)
        if width != self.embed_dim:
            self.layer_norm = nn.LayerNorm(width) if self.layer_norm is not None else None
            self.project_out_dim = Linear(width, self.output_embed_dim, bias=False)
            nn.init.xavier_uniform_(self.project_out_dim.weight)

    def layer_width(self, cfg: TransformerConfig) -> int:
        """Return the width of the grid."""
        return joint_width(cfg.encoder.embed_dim, cfg.decoder.embed_dim, cfg.joint_combination)

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> Layer:
        return build_joint_layer(cfg)

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
        :param alignment_layer: any value requests ``attn``, the weights of the reduction
        :returns: features [B, T, C]; ``attn`` [B, T, S] if requested or not training, ``inner_states`` [T, B, C]
        :raises ValueError: in training, if a single pair has more positions than ``--max-joint-cells``
        """
        assert encoder_out is not None  # there is no grid without a source
        pairs = self._pairs(prev_output_tokens, encoder_out, incremental_state)
        reported = alignment_layer is not None or not self.training
        compute = partial(self._compute_grid, causal=not full_context_alignment, reported=reported)
        caches = None if incremental_state is None else self._caches(incremental_state)
        # A decoding step computes one line of positions, small beside its caches: no need to divide the batch.
        positions = pairs.source.size(1) * pairs.target_padding.numel()  # of the grid, padding included
        if caches is None and positions > self.cfg.max_joint_cells > 0:
            y, attention = self._compute_by_parts(compute, pairs)
        else:
            y, attention = compute(pairs, caches)
        if self.layer_norm is not None:
            y = self.layer_norm(y)
        if self.project_out_dim is not None:
            y = self.project_out_dim(y)
        return y, {"attn": [attention], "inner_states": [y.transpose(0, 1)]}

    def is_replayable(self, positions: int) -> bool:
        divided = positions > self.cfg.max_joint_cells > 0
        return super().is_replayable(positions) and not (divided and self.drops_out)

    def attention_maps(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, list[Tensor]]
    ) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """Return the attention of the last layer along each axis (Figure 5), mean over the heads, and the reduction's.

        :param prev_output_tokens: [B, T]
        :returns: for each map the names of its axes, the last one attended over, and weights [B, *axes]
        """
        kinds, last = (SubLayerKind.TARGET_ATTENTION, SubLayerKind.SOURCE_ATTENTION), self.num_layers - 1
        weights: dict[tuple[int, SubLayerKind], list[Tensor]] = {(last, kind): [] for kind in kinds}
        pairs = self._pairs(prev_output_tokens, encoder_out, None)
        _, reduction = self._compute_grid(pairs, None, causal=True, reported=True, weights=weights)
        assert reduction is not None
        target, source = (weights[last, kind][-1].mean(dim=2) for kind in kinds)
        return {
            "attention over the source": (("target", "source", "source"), source),
            "attention over the target": (("source", "target", "prefix"), target),
            "reduction": (("target", "source"), reduction),
        }

    def _pairs(self, tokens: Tensor, encoder_out: dict[str, list[Tensor]], state: dict[str, Any] | None) -> Pairs:
        source = encoder_out["encoder_out"][0].transpose(0, 1).contiguous()  # the memory layout of the grid
        padding = encoder_out["encoder_padding_mask"][0]
        return Pairs(source, padding, self._embed(tokens, state), tokens.eq(self.padding_idx))

    def _compute_by_parts(self, compute: ComputeGrid, pairs: Pairs) -> tuple[Tensor, Tensor | None]:
        """Compute the grids of a few rows at a time; training recomputes each part in the backward pass.

        Only the grids of one part are in memory, cropped to its longest sentences. Rows are independent of each other,
        so that only the order of sums changes.
        """
        limit, sides = self.cfg.max_joint_cells, (pairs.source_padding, pairs.target_padding)
        source_lengths, target_lengths = map(_lengths, sides)
        largest = max(map(mul, source_lengths, target_lengths))
        if self.training and largest > limit and not is_recording():
            raise OptionError(
                f"a sentence pair has {largest:,} grid positions, more than --max-joint-cells {limit}: raise it, or "
                f"leave such pairs out by --task joint_translation --joint-cells-overflow skip"
            )
        results = []
        for rows in parts_of_batch(source_lengths, target_lengths, limit):
            ranges = [_real_range(padding[rows]) for padding in sides]
            part = pairs.part(rows, *ranges)
            y, attention = checkpoint(compute, part, None, use_reentrant=False, preserve_rng_state=not is_recording())
            around_source, around_target = (
                (real.start, padding.size(1) - real.stop) for real, padding in zip(ranges, sides, strict=True)
            )
            if attention is not None:
                attention = pad(attention, (*around_source, *around_target))  # [rows, T, S]
            results.append((pad(y, (0, 0, *around_target)), attention))
        weights = [attention for _, attention in results if attention is not None]
        return torch.cat([features for features, _ in results]), torch.cat(weights) if weights else None

    def _compute_grid(
        self,
        pairs: Pairs,
        caches: dict[str, Cache] | None,
        causal: bool,
        reported: bool,
        weights: Mapping[tuple[int, SubLayerKind], list[Tensor]] = {},
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the grid and its reduction: features [B, T, C] and, if ``reported``, attention [B, T, S]."""
        source, source_padding, target, target_padding = pairs
        device, dtype, choice = source.device, source.dtype, self.choice.attention
        keys, length = target_padding.size(1), source.size(1)

        def lines(padding: Tensor | None) -> Tensor | None:
            """[B, D] -> [B, 1, D]"""
            return None if padding is None else padding[:, None]

        seen = seen_padding(target_padding, causal, self.left_padded)
        if caches is None:
            target_mask = attention_mask(target.size(1), keys, device, lines(seen), causal, choice, dtype)
        else:
            seen = seen if seen is None else seen[:, None].expand(-1, length, -1)
            target_mask = StepMasks(self.heads).over_target(keys, device, seen, choice)
        source_mask = attention_mask(length, length, device, lines(seen_padding(source_padding)), False, choice, dtype)
        masks = {SubLayerKind.TARGET_ATTENTION: target_mask, SubLayerKind.SOURCE_ATTENTION: source_mask}
        grid = joint_representation(source, target, self.cfg.joint_combination)  # [B, S, T, C]
        padding = source_padding[:, :, None] | target_padding[:, None, -target.size(1) :]  # [B, S, T]
        y, _ = self.step_layers(grid, Context(masks, padding=padding, caches=caches, weights=weights))
        reported_weights: list[Tensor] = []
        y = self.reduction(y, source_padding, reported_weights if reported else None)  # [B, T, C]
        return y, reported_weights[0] if reported else None
