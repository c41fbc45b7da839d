"""Decoder: of a target text, or of a language model's text, as a whole or step by step.

In step-by-step decoding each evaluation of a layer's self-attention has a cache of its own: a stage attends to earlier
positions of the same stage. Axes: B rows, T target positions, S source positions, C channels.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from ode_transformer.nn.attention_scores import attention_mask
from ode_transformer.nn.build_layers import plan_sublayers
from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.decoding_step import FixedCache, FixedStep, StepMasks
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.encoder import EncoderOutput
from ode_transformer.nn.key_value_cache import Caches, KeyValueCache
from ode_transformer.nn.linear import linear_map
from ode_transformer.nn.sizes import PADDING, TransformerSizes
from ode_transformer.nn.stack import Stack, seen_padding, unbiased_linear
from ode_transformer.numerics import SPLITTINGS

# Lists for attention weights by layer and kind of attention, which a pass fills
WeightLists = Mapping[tuple[int, SubLayerKind], list[Tensor]]
NO_WEIGHTS: WeightLists = {}

_ROOM = 64  # positions by which the table of a search grows


class SearchState:
    """What a decoder keeps from step to step of a search.

    :param fixed: inputs of steps that stay at one place in memory; None for steps whose memory grows
    :ivar length: positions so far
    :ivar rows_stay: the next reordering replaces each row by one of the same sentence
    """

    def __init__(self, fixed: FixedStep | None = None) -> None:
        self.fixed, self.length, self.rows_stay = fixed, 0, False
        self.caches = Caches()
        self.masks: StepMasks | None = None
        self.positions: Tensor | None = None  # vectors of the first positions, [1, room, C]

    @torch.no_grad()
    def reorder(self, rows: Tensor) -> None:
        """Replace the rows by those with the numbers ``rows``, as a beam search has chosen."""
        self.caches.reorder(rows, self.rows_stay)


class Decoder(Stack):
    """Decoder that steps an embedded text through its layers; a call returns the scores of the words.

    :param choice: what moves the layers through depth
    :param attends: False for a language model, whose layers attend to no encoder output
    :param output: module that computes the scores of words from features, in place of a projection
    """

    stack = "decoder"
    computes_fixed_steps = True  # a search may use ``FixedStep``

    def __init__(
        self,
        sizes: TransformerSizes,
        choice: DepthChoice,
        embed_tokens: nn.Embedding,
        attends: bool = True,
        output: nn.Module | None = None,
    ) -> None:
        plan = plan_sublayers(SPLITTINGS[choice.splitting], cross_attention=attends)
        super().__init__(sizes, choice, embed_tokens, plan, output)
        self.left_padded = sizes.left_padded

    def build_output(self, output: nn.Module | None) -> None:
        """Build the maps from the last layer to the scores of words."""
        output_dim = self.sizes.output_dim
        self.project_out_dim: nn.Module | None = None
        if self.embed_dim != output_dim:
            self.project_out_dim = unbiased_linear(self.embed_dim, output_dim)
        if output is not None:
            self.output_projection: nn.Module | None = output
            return
        projection = nn.Linear(output_dim, self.sizes.target_words, bias=False)
        if self.sizes.share == "none":
            nn.init.normal_(projection.weight, std=output_dim**-0.5)
        else:
            projection.weight = self.embed_tokens.weight
        self.output_projection = projection

    def forward(self, target: Tensor, source: EncoderOutput | None = None) -> Tensor:
        """Return the scores of the word that follows each position, [B, T, words].

        :param target: numbers of words, [B, T]
        """
        return self.scores(self.features(target, source)[0])

    def features(
        self,
        target: Tensor,
        source: EncoderOutput | None = None,
        causal: bool = True,
        weights: WeightLists = NO_WEIGHTS,
        keep_states: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the features of all positions, [B, T, C], and what each layer and the end read, if asked for.

        :param causal: no position attends to a later one
        """
        y = self.add_positions(self.embed_words(target), self.positions(target))  # [B, T, C]
        context = self._context(target, source, causal, weights, y.dtype)
        y, states = self.step_layers(y, context, keep_states)
        return self.finish(y), states

    def step(
        self,
        words: Tensor,
        source: EncoderOutput | None,
        state: SearchState,
        padding: Tensor | None = None,
        weights: WeightLists = NO_WEIGHTS,
    ) -> Tensor:
        """Return the features of one more position, [B, 1, C].

        :param words: numbers of the words at this position, [B, 1]
        :param source: the same rows as ``words``
        :param padding: True at padding of all positions so far, [B, T]; None for none
        """
        state.length += 1
        y = self.add_positions(self.embed_words(words), self._last_position(state))  # [B, 1, C]
        y, _ = self.step_layers(y, self._step_context(source, state, padding, weights, y.device))
        return self.finish(y)

    def finish(self, y: Tensor) -> Tensor:
        """Return the features that the output reads, [.., C]."""
        y = self.normalize(y)
        return y if self.project_out_dim is None else self.project_out_dim(y)

    def scores(self, features: Tensor) -> Tensor:
        """Return the scores of the words, [.., C] -> [.., words]."""
        projection = self.output_projection
        if type(projection) is nn.Linear:
            return linear_map(features, projection.weight, projection.bias)
        assert projection is not None
        result: Tensor = projection(features)
        return result

    def _context(
        self, target: Tensor, source: EncoderOutput | None, causal: bool, weights: WeightLists, dtype: torch.dtype
    ) -> Context:
        """Return what all layers read."""
        length, device, choice = target.size(1), target.device, self.choice.attention
        padding = target.eq(PADDING)  # [B, T]
        seen = seen_padding(padding, causal, self.left_padded)
        masks = {SubLayerKind.SELF_ATTENTION: attention_mask(length, length, device, seen, causal, choice, dtype)}
        if source is None:
            return Context(masks, padding=padding, weights=weights)
        output, source_padding, _ = source.for_rows(len(target))
        seen, keys = seen_padding(source_padding), output.size(1)
        masks[SubLayerKind.CROSS_ATTENTION] = attention_mask(length, keys, device, seen, dtype=dtype)
        return Context(masks, output, padding, weights=weights)

    def _step_context(
        self,
        source: EncoderOutput | None,
        state: SearchState,
        padding: Tensor | None,
        weights: WeightLists,
        device: torch.device,
    ) -> Context:
        """Return what all layers read at the last position."""
        step, choice = state.fixed, self.choice.attention
        # A recorded step reads padding that other batches overwrite: it makes the masks itself.
        if state.masks is None or step is not None:
            state.masks = StepMasks(self.heads)
        masks = {
            SubLayerKind.SELF_ATTENTION: state.masks.over_target(state.length, device, padding, choice)
            if step is None
            else step.mask(choice)
        }
        build = KeyValueCache if step is None else partial(FixedCache, step)
        if source is None:
            return Context(masks, caches=state.caches, build_cache=build, weights=weights)
        masks[SubLayerKind.CROSS_ATTENTION] = state.masks.over_source(source.padding)
        return Context(masks, source.output, caches=state.caches, build_cache=build, weights=weights)

    def _last_position(self, state: SearchState) -> Tensor | None:
        """Return the vector of the last position of a search, [1, 1, C], from a table of many positions."""
        if self.embed_positions is None:
            return None
        most = max(state.length, self.sizes.max_target_positions)
        room = state.fixed.capacity if state.fixed else min(-(-state.length // _ROOM) * _ROOM, most)
        if state.positions is None or state.positions.size(1) < room:
            state.positions = self.embed_positions.rows(room)[None]
        if state.fixed:
            return state.positions.index_select(1, state.fixed.position)
        return state.positions[:, state.length - 1 : state.length]
