"""Sizes and parameter counts of registered architectures, measured on models without values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ode_transformer.analysis.scaling.equations import ModelSize, StackSize
from ode_transformer.support.errors import UserError


def training_options(arch: str, flags: Sequence[str] = ()) -> argparse.Namespace:
    """Return all options of fairseq-train for an architecture and flags that change it.

    :raises UserError: the architecture or a flag is unknown
    """
    from fairseq.models import ARCH_MODEL_REGISTRY

    import ode_transformer.models  # noqa: F401  (registers the architectures)
    from ode_transformer.models import fairseq_parser

    if arch not in ARCH_MODEL_REGISTRY:
        examples = ", ".join(sorted(name for name in ARCH_MODEL_REGISTRY if name.endswith("_tiny")))
        raise UserError(f"--arch {arch}: no architecture of this name; there are, for example, {examples}")
    return fairseq_parser.parse("fairseq-train", ["DATA", "--arch", arch, *flags])


def meta_model(
    args: argparse.Namespace, changes: Mapping[str, Any] | None = None, dictionaries: tuple[int, int] = (4, 4)
) -> Any:
    """Build the model of these options on the meta device, where parameters have sizes but no values.

    :param changes: options that replace those of ``args``
    :param dictionaries: sizes of the source's and the target's dictionary
    """
    import torch

    from ode_transformer.models.model_from_options import build_from_options

    try:
        with torch.device("meta"):
            return build_from_options(argparse.Namespace(**(vars(args) | dict(changes or {}))), *dictionaries)
    except (AttributeError, ValueError) as error:
        raise UserError(f"--arch {args.arch}: not built as a translation model: {error}") from error


def model_size(args: argparse.Namespace) -> ModelSize:
    """Return the size of the model of these options, with A and F of Eq. 8 counted in the model itself.

    :raises UserError: Eq. 8 cannot describe the model
    """
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel

    is_encoder_decoder = issubclass(ARCH_MODEL_REGISTRY[args.arch], FairseqEncoderDecoderModel)
    if not is_encoder_decoder or not hasattr(args, "decoder_ffn_embed_dim"):
        raise UserError(f"--arch {args.arch}: not an architecture with an encoder and a decoder")
    names = [name for name in ("encoder", "decoder") if getattr(args, f"{name}_layers")]
    sizes = {(getattr(args, f"{name}_embed_dim"), getattr(args, f"{name}_ffn_embed_dim")) for name in names}
    if len(sizes) != 1:
        raise UserError(f"--arch {args.arch}: encoder and decoder have to be equally wide, Eq. 8 has one e and one w")
    ((dim, inner),) = sizes
    return ModelSize({name: _stack_size(args, name, dim, inner) for name in names}, dim, inner)


def _stack_size(args: argparse.Namespace, name: str, dim: int, inner: int) -> StackSize:
    """Return layers, A and F of a stack, measured on four models: one layer more or not, inner size doubled or not."""
    layers = getattr(args, f"{name}_layers")
    weights_per_layer = []
    for inner_size in (inner, 2 * inner):
        sizes = {"encoder_ffn_embed_dim": inner_size, "decoder_ffn_embed_dim": inner_size}
        # A difference of two stacks, because a depth-wise LSTM has networks beside its layers.
        smaller, larger = (meta_model(args, sizes | {f"{name}_layers": count}) for count in (layers, layers + 1))
        weights_per_layer.append(_matrix_weights(getattr(larger, name)) - _matrix_weights(getattr(smaller, name)))
    weights, weights_at_double_inner_size = weights_per_layer
    ffn = (weights_at_double_inner_size - weights) / inner / dim
    return StackSize(layers, weights / dim**2 - ffn * inner / dim, ffn)


def _matrix_weights(stack: Any) -> int:
    """Count the weights of a stack's linear maps: Eq. 8 leaves out biases, normalisation, positions and gates."""
    from torch import nn

    maps = {name: module for name, module in stack.named_modules() if isinstance(module, nn.Linear)}
    return sum(module.weight.numel() for name, module in maps.items() if ".coefficients." not in name)


def count_parameters(model: Any) -> tuple[int, int]:
    """Return the number of all parameters, and the number without embeddings and output projection."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    embeddings = sum(n for name, n in sizes.items() if "embed_tokens" in name or "output_projection" in name)
    return sum(sizes.values()), sum(sizes.values()) - embeddings
