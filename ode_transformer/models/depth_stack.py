"""Moves a representation through a stack of fairseq-configured layers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from fairseq import utils
from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ode_transformer.graphs import is_recording
from ode_transformer.nn import (
    STACKS,
    AttentionChoice,
    BlockId,
    CheckpointSettings,
    DepthChoice,
    FirstLayerValues,
    HiddenSizes,
    Layer,
    LayerContext,
    LayerObserver,
    LSTMChoice,
    StackEvents,
    SubLayer,
    ValueResidual,
    build_scheme,
)
from ode_transformer.numerics import DepthState, WeighingScheme

COMPILER = "inductor"
_VARIANTS = 64  # of a sub-layer's code: its kind, masks, training or evaluation; PyTorch gives up compiling after 8

# Options of the command line that encoder and decoder share: option -> field of DepthChoice, or of LSTMChoice.
DEPTH_OPTIONS = {
    "ode_coefficients": "coefficients",
    "ode_gate_sum": "gate_sum",
    "ode_gate_start": "gate_start",
    "ode_share_coefficients": "share_coefficients",
    "ode_function": "function",
    "ode_function_scope": "scope",
    "ode_steps": "steps",
    "ode_step_size": "step_size",
    "ode_stage_parameters": "stage_parameters",
    "ode_middle_layers": "middle_layers",
    "ode_normalize_step": "normalize_step",
    "value_residual": "value_residual",
    "layer_splitting": "splitting",
}
LSTM_OPTIONS = {f"dlstm_{field.name}": field.name for field in fields(LSTMChoice)}


def depth_choice(cfg: TransformerConfig, stack: str) -> DepthChoice:
    """Return the options of the stack 'encoder' or 'decoder', whether they go together or not.

    Coefficients weigh stages; they are the lengths of steps of one stage only where no stack has several.
    """
    options = getattr(cfg, stack)
    choice = DepthChoice(
        scheme=options.ode_scheme,
        history=options.layer_history,
        normalize_before=options.normalize_before,
        layerdrop=options.layerdrop or 0.0,
        attention=AttentionChoice(cfg.max_relative_positions, cfg.relative_values),
        lstm=LSTMChoice(**{field: getattr(cfg, option) for option, field in LSTM_OPTIONS.items()}),
        **{field: getattr(cfg, option) for option, field in DEPTH_OPTIONS.items()}
        | {"step_size": float(cfg.ode_step_size)},  # Python code may give a whole number
    )
    schemes = [getattr(getattr(cfg, name, None), "ode_scheme", None) or choice.scheme for name in STACKS]
    if not choice.weighs_several_stages and any(DepthChoice(scheme).weighs_several_stages for scheme in schemes):
        return replace(choice, coefficients=DepthChoice().coefficients)
    return choice


def compile_sublayers(layers: nn.Module) -> None:
    """Let the first forward pass compile each sub-layer; names of parameters stay as they are."""
    torch._dynamo.config.recompile_limit = max(_VARIANTS, torch._dynamo.config.recompile_limit)
    for module in layers.modules():
        if isinstance(module, SubLayer):
            module.compile(backend=COMPILER, dynamic=True)  # lengths of batches differ


def feed_forward_options(cfg: TransformerConfig) -> tuple[Callable[[Tensor], Tensor], float]:
    """Return the activation and the inner dropout of feed-forward networks."""
    return utils.get_activation_fn(cfg.activation_fn), float(cfg.activation_dropout or 0)


class DepthStack(nn.Module):
    """Stack of layers that a depth scheme steps; base of encoder and decoder.

    The other base is a class of fairseq whose ``build_encoder_layer`` or ``build_decoder_layer`` builds the layers.
    """

    layers: Sequence[Layer]
    stack: str  # encoder or decoder
    fixed_options: tuple[str, ...] = ()  # further options that a checkpoint of the stack remembers

    # Attributes of fairseq's encoders and decoders.
    cfg: Any
    num_layers: int
    padding_idx: int
    embed_dim: int
    output_embed_dim: int
    embed_scale: float
    embed_tokens: nn.Embedding
    embed_positions: nn.Module | None
    forward_embedding: Any
    _get_full_incremental_state_key: Any
    layernorm_embedding: nn.Module | None
    layer_norm: nn.Module | None
    dropout_module: nn.Module
    project_in_dim: nn.Module | None
    project_out_dim: nn.Module | None

    def layer_width(self, cfg: TransformerConfig) -> int:
        """Return the width of the representation between layers."""
        return int(getattr(cfg, self.stack).embed_dim)

    def build_depth(self, cfg: TransformerConfig) -> None:
        """Build the scheme of the stack after its layers."""
        self.choice, sizes = depth_choice(cfg, self.stack).without_unused_options(), getattr(cfg, self.stack)
        kinds = self.layers[0].kinds if len(self.layers) else {}
        self.grouping = self.choice.grouping(kinds)
        activation, inner_dropout = feed_forward_options(cfg)
        hidden = HiddenSizes(sizes.ffn_embed_dim, activation, cfg.dropout, inner_dropout)
        self.scheme = build_scheme(self.choice, len(self.layers), kinds, self.layer_width(cfg), hidden)
        self.value_residual: ValueResidual | None = None
        if self.choice.value_residual != "none":
            self.value_residual = ValueResidual(len(self.layers), self.choice.value_residual == "learned")
        self.recompute = cfg.checkpoint_activations
        self.trains_in_bfloat16 = cfg.cpu_bf16 and not cfg.ode_options_saved
        self.compiled = cfg.compile and not cfg.ode_options_saved
        if self.compiled:
            compile_sublayers(self.layers)  # type: ignore[arg-type]
        self.observers: list[LayerObserver] = []
        # Index of a layer -> a function that takes the layer's place, see step_layers.
        self.replacements: dict[int, nn.Module] = {}
        may_change = cfg.ode_options_saved or bool(getattr(cfg, "finetune_from_model", None))
        # fairseq does arithmetic with every tensor of a checkpoint, except for those with "version" in their names.
        fixed = {name: getattr(cfg, name) for name in self.fixed_options}
        self.trained_version = CheckpointSettings(self.stack, self.choice, may_change, fixed)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute what fairseq's class returns; training multiplies in bfloat16 on a CPU if ``--cpu-bf16`` says so.

        Parameters, their gradients and the layers' states stay in float32, as with fairseq's ``--amp`` on a GPU.
        """
        if not (self.training and self.trains_in_bfloat16):
            return super().forward(*inputs, **options)
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(*inputs, **options)

    @property
    def stepped_blocks(self) -> list[BlockId]:
        """The stepped blocks in their order."""
        several = len(self.grouping) > 1
        names = ["+".join(members) if several else "" for members, stepped in self.grouping if stepped]
        stepped_layers = self.choice.stepped_layers(len(self.layers))
        return [BlockId(self.stack, index + 1, name) for index in stepped_layers for name in names]

    @property
    def is_observed(self) -> bool:
        """True if an observer is to see what the stack computes."""
        return any(observer.active for observer in self.observers)

    def is_replayable(self, positions: int) -> bool:
        """Tell whether a training step with this number of positions may be replayed from a recording.

        Observers would see nothing, an adaptive softmax selects by value, and what activation checkpointing computes
        again would get another dropout.

        :param positions: rows times the lengths of source and target
        """
        adaptive = getattr(self, "adaptive_softmax", None) is not None
        return not (self.is_observed or adaptive or (self.recompute and self.drops_out))

    @property
    def drops_out(self) -> bool:
        """True if training draws random numbers."""
        cfg = self.cfg
        return any((cfg.dropout, cfg.attention_dropout, cfg.activation_dropout, cfg.word_dropout_prob))

    @property
    def needs_whole_batch(self) -> bool:
        """True if an observer has to see all rows of the batch at once."""
        return any(observer.whole_batch for observer in self.observers if observer.active)

    def step_layers(
        self,
        y0: Tensor,
        contexts: Sequence[LayerContext],
        padding: Tensor | None = None,
        observers: Sequence[LayerObserver] = (),
    ) -> tuple[Tensor, list[Tensor]]:
        """Step ``y0`` through all layers; with activation checkpointing, training keeps only the states between them.

        ``replacements[l]`` is evaluated in place of layer l: it maps the layer's inputs [B, T, n·C] to its outputs
        [B, T, m·C], see :meth:`DepthScheme.layer_inputs` and :meth:`DepthScheme.layer_outputs`.

        :param y0: [B, T, C]
        :param padding: [B, T], True at padding, for observers
        :param observers: observers of this pass, beside those of the stack
        :returns: y_L, and the states that the layers and the end read: y_0, y_1, … [B, T, C] each
        """
        active = [observer for observer in (*self.observers, *observers) if observer.active]
        events = StackEvents(active, self.stack, self.stepped_blocks, padding) if active else None
        if events is not None and events.attention_observers:
            contexts = [events.observed_context(index, context) for index, context in enumerate(contexts)]

        first_values = FirstLayerValues(self.value_residual) if self.value_residual is not None else None
        stepped_layers = self.choice.stepped_layers(len(self.layers))

        def step(index: int, context: LayerContext, depth_state: DepthState) -> DepthState:
            layer = self.layers[index]
            grouping = self.grouping if index in stepped_layers else [(tuple(layer), False)]
            blocks = layer.blocks(context, self.choice.function, grouping)
            if index in self.replacements:
                inputs_of_layer = self.scheme.layer_inputs(depth_state)
                outputs = self.replacements[index](torch.cat(inputs_of_layer, dim=-1)).split(
                    depth_state.y.size(-1), dim=-1
                )
                return self.scheme.skip_layer(outputs, blocks, depth_state)
            return self.scheme.step(blocks, depth_state)

        def recomputed_step(index: int, context: LayerContext, depth_state: DepthState) -> DepthState:
            # Only a tensor among the arguments tells PyTorch which GPU's random numbers dropout has to draw again.
            return checkpoint(
                lambda tensor: step(index, context, depth_state),
                depth_state.y,
                use_reentrant=False,
                preserve_rng_state=not is_recording(),
            )

        one_step = recomputed_step if self.recompute and self.training else step
        depth_state = self.scheme.start(y0)
        states = [depth_state.y]
        with self._observed_steps(events):
            for index in range(len(self.layers)):
                context = contexts[index] if first_values is None else first_values.context(index, contexts[index])
                previous, depth_state = depth_state, one_step(index, context, depth_state)
                if events is not None and events.layer_observers:
                    inputs, outputs = self.scheme.layer_inputs(previous), self.scheme.layer_outputs(depth_state)
                    events.report_layer(index, inputs, outputs)
                states.append(depth_state.y)
        if first_values is not None:
            first_values.values = None  # which the first layer's step, kept to be repeated, would keep in turn
        return self.scheme.finish(depth_state), states

    @contextmanager
    def _observed_steps(self, events: StackEvents | None) -> Iterator[None]:
        """Report what happens within steps, but not again when activation checkpointing repeats them."""
        if events is None or not events.sees_steps:
            yield
            return
        schemes = [scheme for scheme in self.scheme.modules() if isinstance(scheme, WeighingScheme)]
        for scheme in schemes:
            scheme.observer = events
        try:
            yield
        finally:
            for scheme in schemes:
                scheme.observer = None

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """Add the settings to parameters without any; fairseq calls this before it loads parameters."""
        key = f"{name}.trained_version._extra_state"
        state_dict.setdefault(key, self.trained_version.get_extra_state())
        return state_dict
