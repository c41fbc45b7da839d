"""One step of model scaling, solved in closed form (Reformer, Li et al. 2020, Eqs. 8 and 11).

    P(l, w) = Σ l(A + F·w)                        weights of the layers in units of e²              (8)
    P(l + αL'_l, w + αL'_w) = β·P(l, w)           one step along the gradient to β times as many    (11)

l: layers of a stack; e: width; w: inner size of the feed-forward networks / e; L: performance on the validation set. A
layer has A matrices of size e × e in its attentions and F of size e × we in its feed-forward networks. The paper's
Eq. 8, 2l(4 + 2w), is that of joint layers, A = 8 and F = 4; an encoder or PreNet layer has A = 4 and F = 2, a
Transformer's decoder layer A = 8 and F = 2. Written out, Eq. 11 is quadratic in α:

    (ΣF)·L'_l·L'_w·α² + (Σ(A + F·w)·L'_l + (Σl·F)·L'_w)·α − (β − 1)·P(l, w) = 0

A and F of an architecture are counted on models without values.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ode_transformer.support.errors import UserError


@dataclass(frozen=True)
class StackSize:
    """``layers`` layers of (``attention`` + ``ffn``·w)·e² weights each: l, A and F of Eq. 8."""

    layers: int
    attention: float = 8
    ffn: float = 4


@dataclass(frozen=True)
class ScalingStep:
    """The solution of Eq. 11: α, the layers added to every stack, and the number added to w in every layer."""

    alpha: float
    layers: float
    ffn_ratio: float

    def rounded(self) -> "ScalingStep":
        """Return the step in whole layers and whole multiples of e; like the paper, it rounds the step, not the sum."""
        return ScalingStep(self.alpha, round(self.layers), round(self.ffn_ratio))


NO_STEP = ScalingStep(0, 0, 0)


@dataclass(frozen=True)
class ModelSize:
    """The size of a model, as Eq. 8 describes it.

    :param stacks: sizes of ``encoder`` and ``decoder``; a stack without layers is absent
    :param dim: width e
    :param inner: inner size of the feed-forward networks
    """

    stacks: dict[str, StackSize]
    dim: int
    inner: float

    @property
    def ffn_ratio(self) -> float:
        """w of Eq. 8."""
        return self.inner / self.dim

    def enlarged(self, step: ScalingStep) -> "ModelSize":
        """Return the size after a step of whole numbers."""
        stacks = {name: replace(stack, layers=stack.layers + int(step.layers)) for name, stack in self.stacks.items()}
        return ModelSize(stacks, self.dim, self.inner + int(step.ffn_ratio) * self.dim)

    def options(self) -> dict[str, float]:
        """Return the size as flags of fairseq-train, without their dashes."""
        layers = {f"{name}-layers": stack.layers for name, stack in self.stacks.items()}
        return layers | {f"{name}-ffn-embed-dim": self.inner for name in self.stacks}

    def layer_weights(self, step: ScalingStep = NO_STEP) -> float:
        """Return P(l, w) in units of e² after a step (Eq. 8)."""
        w = self.ffn_ratio + step.ffn_ratio
        return sum((stack.layers + step.layers) * (stack.attention + stack.ffn * w) for stack in self.stacks.values())

    def growth(self, step: ScalingStep) -> float:
        """Return the ratio of P after a step to P before it; Eq. 11 sets it to β."""
        return self.layer_weights(step) / self.layer_weights()


def solve(size: ModelSize, gradients: tuple[float, float], beta: float) -> ScalingStep:
    """Return the step that multiplies the weights of the layers by β (Eq. 11).

    :param gradients: L'_l, L'_w; the step depends on their ratio alone, so the unit of L does not matter
    """
    depth, width = gradients
    if not (beta > 1 and min(gradients) >= 0 and max(gradients) > 0):
        raise UserError(
            f"--beta {beta:g} has to be above 1; gradients L'_l = {depth:g}, L'_w = {width:g}: neither may be negative "
            "and one has to be positive; where more makes the model worse, --gradients takes 0 to leave it as it is"
        )
    stacks, w = size.stacks.values(), size.ffn_ratio
    a = depth * width * sum(stack.ffn for stack in stacks)
    b = depth * sum(s.attention + s.ffn * w for s in stacks) + width * sum(s.layers * s.ffn for s in stacks)
    c = (beta - 1) * size.layer_weights()
    alpha = 2 * c / (b + math.sqrt(b * b + 4 * a * c))  # the positive root, written without cancellation
    return ScalingStep(alpha, alpha * depth, alpha * width)


def released_step(size: ModelSize, gradients: tuple[float, float], beta: float) -> ScalingStep:
    """Return the step with the whole α whose growth is closest to β, which the released solver prints first."""
    alpha = solve(size, gradients, beta).alpha
    candidates = [ScalingStep(a, a * gradients[0], a * gradients[1]) for a in (math.floor(alpha), math.ceil(alpha))]
    return min(candidates, key=lambda step: abs(size.growth(step) - beta))


def training_options(arch: str, flags: Sequence[str] = ()) -> argparse.Namespace:
    """Return all options of fairseq-train for an architecture and flags that change it."""
    from ode_transformer.models import fairseq_parser

    return fairseq_parser.parse_training(["DATA", "--arch", arch, *flags])


def model_size(args: argparse.Namespace) -> ModelSize:
    """Return the size of the model of these options, with A and F of Eq. 8 counted in the model itself."""
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel

    names = [name for name in ("encoder", "decoder") if getattr(args, f"{name}_layers", 0)]
    sizes = {(getattr(args, f"{name}_embed_dim"), getattr(args, f"{name}_ffn_embed_dim")) for name in names}
    if len(sizes) != 1 or not issubclass(ARCH_MODEL_REGISTRY[args.arch], FairseqEncoderDecoderModel):
        raise UserError(f"--arch {args.arch}: Eq. 8 is for an encoder and a decoder of the same width and inner size")
    ((dim, inner),) = sizes
    return ModelSize({name: _stack_size(args, name, dim, inner) for name in names}, dim, inner)


def _stack_size(args: argparse.Namespace, name: str, dim: int, inner: int) -> StackSize:
    """Return layers, A and F of a stack, measured on four models: one layer more or not, inner size doubled or not."""
    from ode_transformer.models.model_from_options import build_outline

    layers = getattr(args, f"{name}_layers")
    weights_per_layer = []
    for inner_size in (inner, 2 * inner):
        sizes = {"encoder_ffn_embed_dim": inner_size, "decoder_ffn_embed_dim": inner_size}
        # A difference of two stacks, because a depth-wise LSTM has networks beside its layers.
        smaller, larger = (build_outline(args, changes=sizes | {f"{name}_layers": n}) for n in (layers, layers + 1))
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


def solution_lines(size: ModelSize, gradients: tuple[float, float], beta: float) -> list[str]:
    """Describe the solution of Eq. 11, the released solver's and the rounded size, a line each."""
    step, released = solve(size, gradients, beta), released_step(size, gradients, beta)
    new_size, residual = size.enlarged(step.rounded()), abs(size.growth(released) - beta)
    return [
        f"alpha = {step.alpha:.3f}, Delta l = {step.layers:.3f}, Delta w = {step.ffn_ratio:.3f}",
        f"released search over whole alpha: alpha = {released.alpha:.0f}, Delta l = {released.layers:.2f}, "
        f"Delta w = {released.ffn_ratio:.2f}, |ratio - beta| = {residual:.4f}",
        f"rounded: {' + '.join(str(stack.layers) for stack in new_size.stacks.values())} layers, "
        f"w = {new_size.ffn_ratio:g}; P grows {size.growth(step.rounded()):.3f} times",
    ]


def architecture_lines(
    args: argparse.Namespace, gradients: tuple[float, float], beta: float, dictionaries: tuple[int, int] | None = None
) -> list[str]:
    """Describe the solution for an architecture, its new flags and the parameter counts of both models, a line each.

    :param args: options of fairseq-train for the model that is to be scaled
    :param dictionaries: sizes of the source's and the target's dictionary, to count with embeddings
    """
    from ode_transformer.models.model_from_options import build_outline

    size = model_size(args)
    flags = size.enlarged(solve(size, gradients, beta).rounded()).options()
    changes = {name.replace("-", "_"): value for name, value in flags.items()}
    models = (build_outline(args, dictionaries or (4, 4), options) for options in ({}, changes))
    old, new = map(count_parameters, models)
    lines = [
        *solution_lines(size, gradients, beta),
        f"flags: --arch {args.arch} " + " ".join(f"--{name} {value}" for name, value in flags.items()),
        f"parameters without embeddings: {old[1]:,} -> {new[1]:,}, {new[1] / old[1]:.3f} times as many",
    ]
    if dictionaries is not None:
        lines.append(f"with embeddings: {old[0]:,} -> {new[0]:,}, {new[0] / old[0]:.3f} times as many")
    return lines
