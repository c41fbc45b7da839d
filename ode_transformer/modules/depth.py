"""Moves a representation through a stack of fairseq-configured layers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ode_transformer.nn import DepthChoice, Layer, build_scheme, swapped
from ode_transformer.numerics import DepthState, get_tableau

logger = logging.getLogger(__name__)

# What a sub-layer of layer l needs at its e-th evaluation, which copy c of its parameters makes: (l, name, e, c).
Inputs = Callable[[int, str, int, int], Mapping[str, Any]]


def depth_choice(cfg: TransformerConfig, stack: str) -> DepthChoice:
    """What the options say about one stack, 'encoder' or 'decoder'.

    Coefficients and separate parameters belong to schemes of several stages: a stack of one stage has neither.
    """
    options = getattr(cfg, stack)
    several = get_tableau(options.ode_scheme).stages > 1
    return DepthChoice(
        scheme=options.ode_scheme,
        coefficients=cfg.ode_coefficients if several else "tableau",
        share_coefficients=cfg.ode_share_coefficients,
        function=cfg.ode_function,
        scope=cfg.ode_function_scope,
        steps=cfg.ode_steps,
        stage_parameters=cfg.ode_stage_parameters if several else "shared",
        history=options.layer_history,
        normalize_before=options.normalize_before,
        layerdrop=options.layerdrop or 0.0,
        max_relative_positions=cfg.max_relative_positions,
        relative_values=cfg.relative_values,
    )


class DepthStack(nn.Module):
    """What encoder and decoder have in common: ``layers``, and a scheme that moves a representation through them.

    Mixed into a class of fairseq whose ``build_encoder_layer`` or ``build_decoder_layer`` has made the layers.
    """

    layers: Sequence[Layer]

    def choose_depth(self, cfg: TransformerConfig, stack: str) -> None:
        """Builds the scheme that the options of the stack 'encoder' or 'decoder' choose; its layers exist already."""
        self.choice = depth_choice(cfg, stack)
        dim = getattr(cfg, stack).embed_dim
        self.scheme = build_scheme(self.choice, len(self.layers), tuple(self.layers[0]), dim)
        self.recompute = cfg.checkpoint_activations
        self.may_swap = cfg.ode_trained or bool(getattr(cfg, "finetune_from_model", None))

    def through_depth(self, y0: Tensor, inputs: Inputs) -> tuple[Tensor, list[Tensor]]:
        """Steps ``y0`` through all layers; on request, training keeps only what passes between them.

        :param y0: [B, T, C]
        :param inputs: asked once for each evaluation of a sub-layer, so that every stage can have a cache of its own
        :returns: y_L, and what each layer and the end read: y_0, y_1, … [B, T, C] each
        """

        def step(index: int, depth_state: DepthState) -> DepthState:
            layer = self.layers[index]
            grouping = self.choice.grouping(tuple(layer))
            blocks = layer.blocks(partial(inputs, index), self.choice.function, grouping)
            return self.scheme.step(blocks, depth_state)

        one_step = partial(checkpoint, step, use_reentrant=False) if self.recompute and self.training else step
        depth_state = self.scheme.start(y0)
        passed = [depth_state.y]
        for index in range(len(self.layers)):
            depth_state = one_step(index, depth_state)
            passed.append(depth_state.y)
        return self.scheme.finish(depth_state), passed

    def get_extra_state(self) -> Tensor:
        """What the parameters are trained for, as the bytes of a line: checkpoints hold nothing but tensors."""
        line = " ".join(f"{name}={value}" for name, value in self.choice.trait().items())
        return torch.tensor(list(line.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to take over: :meth:`upgrade_state_dict_named` has compared it."""

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """fairseq calls this before it loads parameters: they may have been trained for another scheme.

        Another scheme is what the user wants who overrides the options of a checkpoint or fine-tunes it. Training that
        merely goes on must not change it unnoticed.

        :raises ValueError: if the parameters cannot, or must not, serve this stack's scheme
        """
        key = f"{name}._extra_state"
        saved = state_dict.setdefault(key, self.get_extra_state())  # absent in a checkpoint that was not trained here
        trained = dict(entry.split("=", 1) for entry in bytes(saved.tolist()).decode().split())
        difference = swapped(trained, self.choice)
        if difference is not None:
            line, reason = difference
            if reason is None and not self.may_swap:
                reason = "decode with --model-overrides or train on with --finetune-from-model to swap them"
            if reason is not None:
                raise ValueError(f"{name}: {line}: {reason}")
            logger.warning(f"{name}: {line}")
        return state_dict
