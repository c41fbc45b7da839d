"""Reformer (Li et al. 2020): an encoder of the source, then a source × target grid in place of cross-attention.

    source    h_s = embed_s (Reformer-base), or the PreNet's output (Reformer-fast)
    grid      x_st = h_s + embed_t, positions and √E according to ``GridChoice.input``    Eq. 4
    layer     target attention → FFN → source attention → FFN, each x + Block(LN(x))       Figure 2a
    output    Reduction over the source, layer normalisation, projection                   Eq. 6

Axes: B batch, S source, T target, C channels. A grid is [B, S, T, C].
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from ode_transformer.nn.attention_scores import attention_mask
from ode_transformer.nn.build_layers import GRID_NOISE, GRID_PLAN, SubLayerPlan, build_layers
from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.decoder import NO_WEIGHTS, Decoder, SearchState, WeightLists
from ode_transformer.nn.decoding_step import StepMasks
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.encoder import Encoder, EncoderOutput
from ode_transformer.nn.grid import Reduction, joint_representation, joint_width, parts_of_batch
from ode_transformer.nn.key_value_cache import Cache
from ode_transformer.nn.linear import Linear
from ode_transformer.nn.recording import is_recording
from ode_transformer.nn.sizes import PADDING, GridChoice, TransformerSizes
from ode_transformer.nn.stack import seen_padding


def position_scale(sizes: TransformerSizes, grid: GridChoice, dim: int) -> float:
    """Return the factor of the positions in Eq. 4, √E in the paper and 1 in the released code."""
    return math.sqrt(dim) if grid.input == "paper" and sizes.scale_embedding else 1.0


class SourceEncoder(Encoder):
    """Encoder of the source part of every position: embeddings (no layers), or the output of the PreNet."""

    shares_rows = False  # cells belong to one hypothesis each

    def __init__(
        self, sizes: TransformerSizes, choice: DepthChoice, embed_tokens: nn.Embedding, grid: GridChoice
    ) -> None:
        super().__init__(sizes, choice, embed_tokens)
        self.grid, self.position_scale = grid, position_scale(sizes, grid, embed_tokens.embedding_dim)
        if not len(self.layers):
            self.layer_norm = None

    def encode(self, source: Tensor, words: Tensor, keep_states: bool = False) -> tuple[EncoderOutput, list[Tensor]]:
        """Encode texts of embedded words; the output [B, S, C] is the source part of every position (Eq. 4)."""
        encoded, states = super().encode(source, words, keep_states)
        if self.grid.input == "paper" and len(self.layers):
            # The PreNet's output replaces embed_s; pos_s and √E stay.
            output, positions = self.embed_scale * encoded.output, self.positions(source)
            if positions is not None:
                output = output + self.position_scale * positions
            encoded = encoded._replace(output=output)
        return encoded, states


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
ComputeGrid = Callable[[Pairs, "SearchState | None"], tuple[Tensor, Tensor | None]]


class GridDecoder(Decoder):
    """Decoder that steps a grid of encoder output × target prefix through its layers and reduces it to the target.

    In step-by-step decoding each step adds one target position to every source position: attention over the target
    reads caches [B, S, H, T, C/H]; attention over the source and the reduction read only the new line of positions.
    """

    computes_fixed_steps = False  # most of a grid with room for more positions would be masked

    def __init__(
        self,
        sizes: TransformerSizes,
        choice: DepthChoice,
        embed_tokens: nn.Embedding,
        grid: GridChoice,
        output: nn.Module | None = None,
    ) -> None:
        self.grid = grid
        super().__init__(sizes, choice, embed_tokens, output=output)
        self.position_scale = position_scale(sizes, grid, embed_tokens.embedding_dim)
        width = self.layer_width
        self.reduction = Reduction(width, grid.reduction, choice.normalize_before)
        if width != self.embed_dim:
            self.layer_norm = nn.LayerNorm(width) if self.layer_norm is not None else None
            self.project_out_dim = Linear(width, sizes.output_dim, bias=False)
            nn.init.xavier_uniform_(self.project_out_dim.weight)

    @property
    def layer_width(self) -> int:
        """Width of the grid."""
        return joint_width(self.sizes.encoder.dim, self.embed_dim, self.grid.combination)

    def build_layers(self, plan: SubLayerPlan) -> nn.ModuleList:
        """Build the layers of a grid."""
        noise = GRID_NOISE if self.grid.dropout == "shared" else {}
        return build_layers(self.sizes, self.stack, self.choice, GRID_PLAN, self.layer_width, noise)

    def fixed_settings(self) -> dict[str, str]:
        """Return the factor of positions, which shapes do not show."""
        return {"joint_input": self.grid.input}

    def features(
        self,
        target: Tensor,
        source: EncoderOutput | None = None,
        causal: bool = True,
        weights: WeightLists = NO_WEIGHTS,
        keep_states: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the features of all positions, [B, T, C], and of the states the features alone.

        :param weights: the reduction's weights [B, 1, T, S] are those of the cross-attention of the last layer
        :raises ValueError: in training, if a single pair has more positions than ``GridChoice.max_cells``
        """
        assert source is not None  # there is no grid without a source
        target_words = self.add_positions(self.embed_words(target), self.positions(target))
        pairs = Pairs(source.output.contiguous(), source.padding, target_words, target.eq(PADDING))
        reported = self._reported(weights)
        compute = partial(self._compute_grid, causal=causal, reported=reported is not None, weights=weights)
        positions = pairs.source.size(1) * pairs.target_padding.numel()  # of the grid, padding included
        if positions > self.grid.max_cells > 0:
            y, attention = self._compute_by_parts(compute, pairs)
        else:
            y, attention = compute(pairs, None)
        if reported is not None and attention is not None:
            reported.append(attention[:, None])
        y = self.finish(y)
        return y, [y] if keep_states else []

    def step(
        self,
        words: Tensor,
        source: EncoderOutput | None,
        state: SearchState,
        padding: Tensor | None = None,
        weights: WeightLists = NO_WEIGHTS,
    ) -> Tensor:
        """Return the features of one more position, [B, 1, C]; a line of the grid is never divided."""
        assert source is not None
        state.length += 1
        target = self.add_positions(self.embed_words(words), self._last_position(state))
        if padding is None:
            padding = words.new_zeros(len(words), state.length, dtype=torch.bool)
        pairs = Pairs(source.output.contiguous(), source.padding, target, padding)
        reported = self._reported(weights)
        y, attention = self._compute_grid(pairs, state, True, reported is not None)
        if reported is not None and attention is not None:
            reported.append(attention[:, None])
        return self.finish(y)

    def attention_maps(self, target: Tensor, source: EncoderOutput) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """Return the attention of the last layer along each axis (Figure 5), mean over the heads, and the reduction's.

        :param target: [B, T]
        :returns: for each map the names of its axes, the last one attended over, and weights [B, *axes]
        """
        kinds, last = (SubLayerKind.TARGET_ATTENTION, SubLayerKind.SOURCE_ATTENTION), self.num_layers - 1
        weights: dict[tuple[int, SubLayerKind], list[Tensor]] = {(last, kind): [] for kind in kinds}
        words = self.add_positions(self.embed_words(target), self.positions(target))
        pairs = Pairs(source.output.contiguous(), source.padding, words, target.eq(PADDING))
        _, reduction = self._compute_grid(pairs, None, causal=True, reported=True, weights=weights)
        assert reduction is not None
        over_target, over_source = (weights[last, kind][-1].mean(dim=2) for kind in kinds)
        return {
            "attention over the source": (("target", "source", "source"), over_source),
            "attention over the target": (("source", "target", "prefix"), over_target),
            "reduction": (("target", "source"), reduction),
        }

    def _reported(self, weights: WeightLists) -> list[Tensor] | None:
        """Return the list for the reduction's weights, whichever layer they are asked of."""
        lists = (of_kind for (_, kind), of_kind in weights.items() if kind is SubLayerKind.CROSS_ATTENTION)
        return next(lists, None)

    def _lengths(self, padding: Tensor) -> list[int]:
        """Return the length of each text of a batch, [B, T], without its padding, unless nobody may see it."""
        return [padding.size(1)] * len(padding) if is_recording() else padding.logical_not().sum(dim=1).tolist()

    def _real_range(self, padding: Tensor) -> slice:
        """Return the range of positions of [B, T] without the padding of every row at both ends, at least 1."""
        if is_recording():
            return slice(0, padding.size(1))
        positions = padding.all(dim=0).logical_not().nonzero()
        if not len(positions):  # rows that a batch has been padded by
            return slice(0, 1)
        return slice(int(positions[0]), int(positions[-1]) + 1)

    def _compute_by_parts(self, compute: ComputeGrid, pairs: Pairs) -> tuple[Tensor, Tensor | None]:
        """Compute the grids of a few rows at a time; training recomputes each part in the backward pass.

        Only the grids of one part are in memory, cropped to its longest sentences. Rows are independent of each other,
        so that only the order of sums changes.
        """
        limit, sides = self.grid.max_cells, (pairs.source_padding, pairs.target_padding)
        source_lengths, target_lengths = map(self._lengths, sides)
        largest = max(map(mul, source_lengths, target_lengths))
        if self.training and largest > limit and not is_recording():
            raise ValueError(
                f"a sentence pair has {largest:,} grid positions, more than --max-joint-cells {limit}: raise it, or "
                f"leave such pairs out by --task joint_translation --joint-cells-overflow skip"
            )
        results = []
        for rows in parts_of_batch(source_lengths, target_lengths, limit):
            ranges = [self._real_range(padding[rows]) for padding in sides]
            part = pairs.part(rows, *ranges)
            keep_random = not is_recording()
            y, attention = checkpoint(compute, part, None, use_reentrant=False, preserve_rng_state=keep_random)
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
        state: SearchState | None,
        causal: bool,
        reported: bool,
        weights: Mapping[tuple[int, SubLayerKind], list[Tensor]] = NO_WEIGHTS,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the grid and its reduction: features [B, T, C] and, if ``reported``, attention [B, T, S]."""
        source, source_padding, target, target_padding = pairs
        device, dtype, choice = source.device, source.dtype, self.choice.attention
        keys, length = target_padding.size(1), source.size(1)
        caches: dict[str, Cache] | None = None if state is None else state.caches

        def lines(padding: Tensor | None) -> Tensor | None:
            """[B, D] -> [B, 1, D]"""
            return None if padding is None else padding[:, None]

        seen = seen_padding(target_padding, causal, self.left_padded)
        if state is None:
            target_mask = attention_mask(target.size(1), keys, device, lines(seen), causal, choice, dtype)
        else:
            seen = seen if seen is None else seen[:, None].expand(-1, length, -1)
            target_mask = StepMasks(self.heads).over_target(keys, device, seen, choice)
        source_mask = attention_mask(length, length, device, lines(seen_padding(source_padding)), False, choice, dtype)
        masks = {SubLayerKind.TARGET_ATTENTION: target_mask, SubLayerKind.SOURCE_ATTENTION: source_mask}
        grid = joint_representation(source, target, self.grid.combination)  # [B, S, T, C]
        padding = source_padding[:, :, None] | target_padding[:, None, -target.size(1) :]  # [B, S, T]
        y, _ = self.step_layers(grid, Context(masks, padding=padding, caches=caches, weights=weights))
        reported_weights: list[Tensor] = []
        y = self.reduction(y, source_padding, reported_weights if reported else None)  # [B, T, C]
        return y, reported_weights[0] if reported else None
