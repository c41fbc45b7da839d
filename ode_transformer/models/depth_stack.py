"""Moves a representation through a stack of fairseq-configured layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from fairseq import utils
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ode_transformer.models.depth_log import DepthLog
from ode_transformer.nn import (
    AttentionChoice,
    CheckpointSettings,
    DepthChoice,
    HiddenSizes,
    Layer,
    LayerContext,
    LSTMChoice,
    build_scheme,
)
from ode_transformer.numerics import DepthState

# Sees a layer as a function: its number, what it was given and what it made of that, each [B, T, C].
Watch = Callable[[int, Sequence[Tensor], Sequence[Tensor]], None]


def depth_choice(cfg: TransformerConfig, stack: str) -> DepthChoice:
    """What the options say about one stack, 'encoder' or 'decoder', whether it goes together or not."""
    options = getattr(cfg, stack)
    return DepthChoice(
        scheme=options.ode_scheme,
        coefficients=cfg.ode_coefficients,
        share_coefficients=cfg.ode_share_coefficients,
        function=cfg.ode_function,
        scope=cfg.ode_function_scope,
        steps=cfg.ode_steps,
        stage_parameters=cfg.ode_stage_parameters,
        splitting=cfg.layer_splitting,
        lstm=LSTMChoice(
            cfg.dlstm_hidden, cfg.dlstm_merge, cfg.dlstm_share, cfg.dlstm_first_cell, cfg.dlstm_forget_bias
        ),
        history=options.layer_history,
        normalize_before=options.normalize_before,
        layerdrop=options.layerdrop or 0.0,
        attention=AttentionChoice(cfg.max_relative_positions, cfg.relative_values),
    )


def feed_forward_options(cfg: TransformerConfig) -> tuple[Callable[[Tensor], Tensor], float]:
    """Activation and inner dropout of feed-forward networks."""
    # relu_dropout is the name under which old configurations know activation_dropout.
    return utils.get_activation_fn(cfg.activation_fn), float(cfg.activation_dropout or cfg.relu_dropout or 0)


class DepthStack(nn.Module):
    """What encoder and decoder have in common: ``layers``, and a scheme that moves a representation through them.

    Mixed into a class of fairseq whose ``build_encoder_layer`` or ``build_decoder_layer`` has made the layers.
    """

    layers: Sequence[Layer]

    def choose_depth(
        self, cfg: TransformerConfig, stack: str, dim: int | None = None, fixed: Mapping[str, str] | None = None
    ) -> None:
        """Builds the scheme that the options of the stack 'encoder' or 'decoder' choose; its layers exist already.

        :param dim: width of the representation; the stack's by default
        :param fixed: more options that a checkpoint of the stack keeps
        """
        self.stack = stack
        self.choice, sizes = depth_choice(cfg, stack).without_unused_options(), getattr(cfg, stack)
        kinds = self.layers[0].kinds if len(self.layers) else {}
        self.grouping = self.choice.grouping(kinds)
        activation, inner_dropout = feed_forward_options(cfg)
        hidden = HiddenSizes(sizes.ffn_embed_dim, activation, cfg.dropout, inner_dropout)
        self.scheme = build_scheme(self.choice, len(self.layers), kinds, dim or sizes.embed_dim, hidden)
        self.recompute = cfg.checkpoint_activations
        self.replacements: dict[int, nn.Module] = {}
        self.watch: Watch | None = None
        self.depth_log: DepthLog | None = None
        may_change = cfg.ode_trained or bool(getattr(cfg, "finetune_from_model", None))
        # fairseq does arithmetic with all that a checkpoint holds, but for names with "version" in them.
        self.trained_version = CheckpointSettings(stack, self.choice, may_change, fixed or {})

    @property
    def stepped(self) -> list[tuple[int, tuple[str, ...]]]:
        """The stepped blocks in their order: number of the layer, and which part of it, if it has several blocks."""
        parts = [
            ("+".join(members),) if len(self.grouping) > 1 else () for members, stepped in self.grouping if stepped
        ]
        return [(number, part) for number in range(1, len(self.layers) + 1) for part in parts]

    def step_layers(
        self, y0: Tensor, contexts: Sequence[LayerContext], padding: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Steps ``y0`` through all layers; on request, training keeps only what passes between them.

        ``replacements[l]`` maps what layer l is a function of, [B, T, n·C], to what the layer would make of it, [B, T,
        m·C], in the layer's place; ``watch`` sees the functions that layers are (see ``DepthScheme.layer_inputs``).

        :param y0: [B, T, C]
        :param contexts: context of each layer
        :param padding: [B, T], True where nothing is to be logged
        :returns: y_L, and what each layer and the end read: y_0, y_1, … [B, T, C] each
        """

        def step(index: int, depth_state: DepthState) -> DepthState:
            blocks = self.layers[index].blocks(contexts[index], self.choice.function, self.grouping)
            if index in self.replacements:
                inputs_of_layer = self.scheme.layer_inputs(depth_state)
                outputs = self.replacements[index](torch.cat(inputs_of_layer, dim=-1)).split(
                    depth_state.y.size(-1), dim=-1
                )
                return self.scheme.skip_layer(outputs, blocks, depth_state)
            return self.scheme.step(blocks, depth_state)

        log = self.depth_log if self.depth_log is not None and self.depth_log.following else None
        one_step = partial(checkpoint, step, use_reentrant=False) if self.recompute and self.training else step
        depth_state = self.scheme.start(y0)
        passed = [depth_state.y]
        with nullcontext() if log is None else log.weighing(self, padding):
            for index in range(len(self.layers)):
                if log is not None:
                    log.reads(self.stack, index + 1, self.scheme.layer_inputs(depth_state))
                before, depth_state = depth_state, one_step(index, depth_state)
                if self.watch is not None:
                    self.watch(index, self.scheme.layer_inputs(before), self.scheme.layer_outputs(depth_state))
                passed.append(depth_state.y)
        return self.scheme.finish(depth_state), passed

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """fairseq calls this before it loads parameters; those that were not trained here do not say for what."""
        key = f"{name}.trained_version._extra_state"
        state_dict.setdefault(key, self.trained_version.get_extra_state())
        return state_dict
