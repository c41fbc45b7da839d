"""A stack of layers that a depth scheme steps: base of encoder and decoder.

    y_0 = dropout(√d · word + position),   y_L by the scheme,   output = LN(y_L) if the stack is pre-norm

Axes: B batch, T positions, C channels.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ode_transformer.nn.build_layers import SubLayerPlan, build_layers, stepped_groups
from ode_transformer.nn.checkpoint_settings import CheckpointSettings
from ode_transformer.nn.context import Context
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.depth_wise_lstm import HiddenSizes
from ode_transformer.nn.dropout import WordDropout
from ode_transformer.nn.embedding import EmbeddingDropout, build_positions
from ode_transformer.nn.layer import BlockId
from ode_transformer.nn.layer_history import LayerHistory
from ode_transformer.nn.recording import is_recording
from ode_transformer.nn.scheme import build_scheme
from ode_transformer.nn.sizes import ACTIVATIONS, PADDING, TransformerSizes
from ode_transformer.nn.value_residual import ValueResidual
from ode_transformer.numerics import Scheme


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


class Stack(nn.Module):
    """Embedding, layers and their scheme.

    :param choice: what moves the layers through depth
    :param embed_tokens: embeddings of the words
    :param plan: the sub-layers of a layer
    :param output: given to :meth:`build_output`
    """

    stack: ClassVar[str]  # encoder or decoder
    position_scale = 1.0  # factor of positions
    layers: Any  # a list of ``Layer``
    layer_norm: nn.Module | None

    def __init__(
        self,
        sizes: TransformerSizes,
        choice: DepthChoice,
        embed_tokens: nn.Embedding,
        plan: SubLayerPlan,
        output: nn.Module | None = None,
    ) -> None:
        nn.Module.__init__(self)  # and not that of a second base, which an adapter to another library has
        own = getattr(sizes, self.stack)
        self.sizes, self.choice, self.heads, self.embed_dim = sizes, choice, int(own.heads), int(own.dim)
        self.padding_idx = PADDING
        self.register_buffer("version", torch.tensor([3.0]))  # by which fairseq tells formats of checkpoints apart
        self.dropout_module = EmbeddingDropout(sizes.dropout)
        self.embed_tokens = embed_tokens
        scaled_width = embed_tokens.embedding_dim if self.stack == "encoder" else own.dim
        self.embed_scale = math.sqrt(scaled_width) if sizes.scale_embedding else 1.0
        self.project_in_dim: nn.Module | None = None
        if embed_tokens.embedding_dim != own.dim:
            self.project_in_dim = unbiased_linear(embed_tokens.embedding_dim, own.dim)
        self.embed_positions = build_positions(own.positions, own.max_positions, own.dim)
        self.layernorm_embedding = nn.LayerNorm(own.dim) if sizes.normalize_embedding else None
        self.layers = self.build_layers(plan)
        self.num_layers = len(self.layers)
        normalizes = choice.normalize_before and (sizes.final_norm or self.stack == "encoder")
        self.layer_norm = nn.LayerNorm(own.dim) if normalizes else None
        self.recompute = sizes.recompute
        self.build_output(output)
        self._build_depth()
        self.word_dropout = WordDropout(sizes.word_dropout)

    def build_layers(self, plan: SubLayerPlan) -> nn.ModuleList:
        """Build the layers."""
        return build_layers(self.sizes, self.stack, self.choice, plan)

    def build_output(self, output: nn.Module | None) -> None:
        """Build what stands behind the layers."""

    @property
    def layer_width(self) -> int:
        """Width of the representation between layers."""
        return self.embed_dim

    def _build_depth(self) -> None:
        # With a mask, cuDNN's gradient can be NaN on Hopper GPUs (pytorch issue 196678): PyTorch's own kernels attend.
        torch.backends.cuda.enable_cudnn_sdp(False)
        kinds = self.layers[0].kinds if len(self.layers) else {}
        self.groups = stepped_groups(self.choice, kinds)
        own, sizes = getattr(self.sizes, self.stack), self.sizes
        activation = ACTIVATIONS[sizes.activation]
        hidden = HiddenSizes(own.ffn, activation, sizes.dropout, sizes.activation_dropout)
        self.scheme = build_scheme(self.choice, len(self.layers), kinds, self.layer_width, hidden)
        self.value_residual: ValueResidual | None = None
        if self.choice.value_residual != "none":
            self.value_residual = ValueResidual(len(self.layers), self.choice.value_residual == "learned")
        # fairseq does arithmetic with every tensor of a checkpoint, except for those with "version" in their names.
        self.trained_version = CheckpointSettings(self.stack, self.choice, False, self.fixed_settings())

    def fixed_settings(self) -> dict[str, str]:
        """Return further settings that a checkpoint remembers and that nothing may change."""
        return {}

    @property
    def stepped_blocks(self) -> list[BlockId]:
        """Blocks that the scheme steps, in their order."""
        several = len(self.groups) > 1
        names = ["+".join(members) if several else "" for members, stepped in self.groups if stepped]
        stepped_layers = self.choice.stepped_layers(len(self.layers))
        return [BlockId(self.stack, index + 1, name) for index in stepped_layers for name in names]

    @property
    def depth_scheme(self) -> Scheme:
        """Scheme that steps the layers."""
        return self.scheme.scheme if isinstance(self.scheme, LayerHistory) else self.scheme

    @property
    def history(self) -> LayerHistory | None:
        """Layer history, which stands around the scheme in the names of parameters alone."""
        return self.scheme if isinstance(self.scheme, LayerHistory) else None

    def max_positions(self) -> int:
        """Return the number of tokens of the longest text that the stack takes."""
        limit = int(getattr(self.sizes, self.stack).max_positions)
        return limit if self.embed_positions is None else min(limit, self.embed_positions.max_positions)

    def embed_words(self, tokens: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Return the scaled embeddings of words, [B, T] -> [B, T, width of the embeddings].

        :param vectors: in the place of the words' own ones
        """
        return self.embed_scale * (self.word_dropout(self.embed_tokens(tokens)) if vectors is None else vectors)

    def add_positions(self, words: Tensor, positions: Tensor | None) -> Tensor:
        """Return what the first layer reads, [B, T, C].

        :param words: from :meth:`embed_words`
        :param positions: their vectors, which broadcast to [B, T, C]; None for none
        """
        y = words if self.project_in_dim is None else self.project_in_dim(words)
        if positions is not None:
            y = torch.add(y, positions, alpha=self.position_scale)
        return self.dropout_module(y if self.layernorm_embedding is None else self.layernorm_embedding(y))

    def positions(self, tokens: Tensor) -> Tensor | None:
        """Return the vectors of the positions of texts, [B, T] -> [B, T, C]; None if the stack has none."""
        return None if self.embed_positions is None else self.embed_positions(tokens)

    def step_layers(self, y: Tensor, context: Context, keep_states: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Step ``y`` through all layers; with recomputing, training keeps only the states between them.

        :param y: [.., C]
        :param keep_states: also return what the layers and the end read
        :returns: y_L; y_0, y_1, …, each [.., C], or an empty list
        """
        scheme, history = self.depth_scheme, self.history
        earlier = None  # states of the history
        state: Any = scheme.start(y)
        if history is not None:
            y, earlier = history(y)
        if self.value_residual is not None:
            context = replace(context, values=self.value_residual.start())
        states = [y] if keep_states else []
        for layer in self.layers:
            if self.recompute and self.training:
                keep_random = not is_recording()
                y, state = checkpoint(
                    layer, y, state, context, scheme, use_reentrant=False, preserve_rng_state=keep_random
                )
            else:
                y, state = layer(y, state, context, scheme)
            if history is not None:
                y, earlier = history(y, earlier)
            if keep_states:
                states.append(y)
        return y, states

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        if isinstance(self.trained_version, CheckpointSettings):  # which an exported model has in its configuration
            # Parameters of released code and of fairseq's own models come without settings.
            state_dict.setdefault(f"{prefix}trained_version._extra_state", self.trained_version.get_extra_state())
        state_dict.setdefault(f"{prefix}version", torch.tensor([3.0]))
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def normalize(self, y: Tensor) -> Tensor:
        """Return the stack's output, [.., C]."""
        return y if self.layer_norm is None else self.layer_norm(y)


def unbiased_linear(input_dim: int, dim: int) -> nn.Linear:
    """Build a linear map without bias, by Xavier's weights."""
    module = nn.Linear(input_dim, dim, bias=False)
    nn.init.xavier_uniform_(module.weight)
    return module
