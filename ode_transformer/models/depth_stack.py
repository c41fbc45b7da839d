"""Moves a representation through a stack of fairseq-configured layers."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from fairseq import utils
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ode_transformer.nn import (
    BlockId,
    CheckpointSettings,
    Context,
    DepthChoice,
    HiddenSizes,
    Layer,
    LayerHistory,
    ValueResidual,
    build_scheme,
)
from ode_transformer.numerics import Scheme
from ode_transformer.speed.recording import is_recording


def feed_forward_options(cfg: TransformerConfig) -> tuple[Callable[[Tensor], Tensor], float]:
    """Return the activation and the inner dropout of feed-forward networks."""
    return utils.get_activation_fn(cfg.activation_fn), float(cfg.activation_dropout or 0)


def seen_padding(padding: Tensor, causal: bool = False, on_the_left: bool = False) -> Tensor | None:
    """Return the padding that a mask has to hide; None for none.

    Positions that attend to earlier ones alone do not see padding on their right. On a CPU the values decide; on a GPU
    nobody looks at them, because that waits for the GPU and cannot be recorded.

    :param padding: [B, T], True at padding, which lies on one side of each text
    :param causal: no position attends to a later one
    :param on_the_left: where padding lies, for a GPU
    """
    if padding.device.type == "cpu" and not is_recording():
        return padding if (padding[:, 0] if causal else padding).any() else None
    return None if causal and not on_the_left else padding


class DepthStack(nn.Module):
    """Stack of layers that a depth scheme steps; base of encoder and decoder.

    The other base is a class of fairseq whose ``build_encoder_layer`` or ``build_decoder_layer`` builds the layers.
    """

    layers: Sequence[Layer]
    stack: str  # encoder or decoder
    fixed_options: tuple[str, ...] = ()  # further options that a checkpoint of the stack remembers

    layer_norm: nn.Module | None
    if TYPE_CHECKING:  # other attributes of fairseq's encoders and decoders

        def __getattr__(self, name: str) -> Any: ...

    def layer_width(self, cfg: TransformerConfig) -> int:
        """Return the width of the representation between layers."""
        return int(getattr(cfg, self.stack).embed_dim)

    def build_depth(self, cfg: TransformerConfig) -> None:
        """Build the scheme of the stack after its layers."""
        # With a mask, cuDNN's gradient can be NaN on Hopper GPUs (pytorch issue 196678): PyTorch's own kernels attend.
        torch.backends.cuda.enable_cudnn_sdp(False)
        sizes = getattr(cfg, self.stack)
        self.choice: DepthChoice = sizes.depth
        kinds = self.layers[0].kinds if len(self.layers) else {}
        self.grouping = self.choice.grouping(kinds)
        first_block, function = 0, self.choice.function
        if self.choice.is_lstm:  # its scheme reads all attentions of a layer at once
            attentions = tuple(name for names, _ in self.grouping for name in names)
            self.grouping, function = [(attentions, True)], "attentions"
        for index, layer in enumerate(self.layers):
            is_stepped = index in self.choice.stepped_layers(len(self.layers))
            blocks = self.grouping if is_stepped else [(tuple(layer), False)]
            first_block = layer.place(index, blocks, first_block, function)
        activation, inner_dropout = feed_forward_options(cfg)
        hidden = HiddenSizes(sizes.ffn_embed_dim, activation, cfg.dropout, inner_dropout)
        self.scheme = build_scheme(self.choice, len(self.layers), kinds, self.layer_width(cfg), hidden)
        self.value_residual: ValueResidual | None = None
        if self.choice.value_residual != "none":
            self.value_residual = ValueResidual(len(self.layers), self.choice.value_residual == "learned")
        self.recompute = cfg.checkpoint_activations
        self.trains_in_bfloat16 = cfg.cpu_bf16 and not cfg.ode_options_saved
        # Called with the logarithms of the probabilities [B, T, words] that a criterion reads.
        self.see_log_probabilities: Callable[[Tensor], None] | None = None
        may_change = cfg.ode_options_saved or bool(getattr(cfg, "finetune_from_model", None))
        # fairseq does arithmetic with every tensor of a checkpoint, except for those with "version" in their names.
        fixed = {name: getattr(cfg, name) for name in self.fixed_options}
        self.trained_version = CheckpointSettings(self.stack, self.choice, may_change, fixed)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute what fairseq's class returns; training multiplies in bfloat16 on a CPU if ``--cpu-bf16`` says so.

        Parameters, their gradients and the layers' states stay in float32, as with fairseq's ``--amp`` on a GPU.
        """
        in_bfloat16 = self.training and self.trains_in_bfloat16
        with torch.autocast("cpu", torch.bfloat16) if in_bfloat16 else nullcontext():
            return super().forward(*inputs, **options)

    @property
    def stepped_blocks(self) -> list[BlockId]:
        several = len(self.grouping) > 1
        names = ["+".join(members) if several else "" for members, stepped in self.grouping if stepped]
        stepped_layers = self.choice.stepped_layers(len(self.layers))
        return [BlockId(self.stack, index + 1, name) for index in stepped_layers for name in names]

    @property
    def is_observed(self) -> bool:
        """True if somebody wants to see the probabilities."""
        return self.see_log_probabilities is not None

    def is_replayable(self, positions: int) -> bool:
        """Tell whether a training step may be replayed whose rows times lengths of source and target are ``positions``.

        Nobody would see the probabilities, an adaptive softmax selects by value, and what activation checkpointing
        computes again would get another dropout.
        """
        adaptive = getattr(self, "adaptive_softmax", None) is not None
        return not (self.is_observed or adaptive or (self.recompute and self.drops_out))

    @property
    def drops_out(self) -> bool:
        """True if training draws random numbers."""
        cfg = self.cfg
        return any((cfg.dropout, cfg.attention_dropout, cfg.activation_dropout, cfg.word_dropout_prob))

    @property
    def depth_scheme(self) -> Scheme:
        """Scheme that steps the layers."""
        return self.scheme.scheme if isinstance(self.scheme, LayerHistory) else self.scheme

    @property
    def history(self) -> LayerHistory | None:
        """Layer history, which stands around the scheme in the names of parameters alone."""
        return self.scheme if isinstance(self.scheme, LayerHistory) else None

    def step_layers(self, y: Tensor, context: Context) -> tuple[Tensor, list[Tensor]]:
        """Step ``y`` through all layers; with activation checkpointing, training keeps only the states between them.

        :param y: [B, T, C]
        :returns: y_L, and what the layers and the end read: y_0, y_1, … [B, T, C] each
        """
        scheme, history = self.depth_scheme, self.history
        earlier = None  # states of the history
        state = scheme.start(y)
        if history is not None:
            y, earlier = history(y)
        context = replace(context, value_residual=self.value_residual)
        inputs = [y]
        for layer in self.layers:
            if self.recompute and self.training:
                y, state = checkpoint(
                    layer, y, state, context, scheme, use_reentrant=False, preserve_rng_state=not is_recording()
                )
            else:
                y, state = layer(y, state, context, scheme)
            if history is not None:
                y, earlier = history(y, earlier)
            inputs.append(y)
        return y, inputs

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """Add the settings to parameters without any; fairseq calls this before it loads parameters."""
        key = f"{name}.trained_version._extra_state"
        state_dict.setdefault(key, self.trained_version.get_extra_state())
        return state_dict
