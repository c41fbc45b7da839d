"""``ode-transformer scale``: where to put more parameters, depth or width (Reformer, Li et al. 2020, Eqs. 8-11).

    P(l, w) = Σ l(A + F·w)                        weights of the layers in units of e²              (8)
    P(l + αL'_l, w + αL'_w) = β·P(l, w)           one step along the gradient to β times as many    (11)

l: layers of a stack; e: width; w: inner size of the feed-forward networks / e; L: performance on the validation set. A
layer has A matrices of size e × e in its attentions and F of size e × we in its feed-forward networks. The paper's
Eq. 8, 2l(4 + 2w), is that of joint layers, A = 8 and F = 4; an encoder or PreNet layer has A = 4 and F = 2, a
Transformer's decoder layer A = 8 and F = 2. Written out, Eq. 11 is quadratic in α:

    (ΣF)·L'_l·L'_w·α² + (Σ(A + F·w)·L'_l + (Σl·F)·L'_w)·α − (β − 1)·P(l, w) = 0
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ode_transformer.support.arguments import positive_int
from ode_transformer.support.errors import UserError

MAX_BETA = 100


@dataclass(frozen=True)
class Stack:
    """``layers`` layers of (``attention`` + ``ffn``·w)·e² weights each: l, A and F of Eq. 8."""

    layers: int
    attention: float = 8
    ffn: float = 4


@dataclass(frozen=True)
class Step:
    """The solution of Eq. 11: α, and what every stack gains in layers and every layer in w."""

    alpha: float
    layers: float
    ffn_ratio: float

    def rounded(self) -> Step:
        """Whole layers and a whole multiple of e: as the paper, which adds 2 and 2, it rounds the step, not the sum."""
        return Step(self.alpha, round(self.layers), round(self.ffn_ratio))


def weights(stacks: Sequence[Stack], w: float, more_layers: float = 0.0) -> float:
    """P(l, w) in units of e², every stack having so many layers more (Eq. 8)."""
    return sum((stack.layers + more_layers) * (stack.attention + stack.ffn * w) for stack in stacks)


def growth(stacks: Sequence[Stack], w: float, step: Step) -> float:
    """P after the step / P before it: the left side of Eq. 11."""
    return weights(stacks, w + step.ffn_ratio, step.layers) / weights(stacks, w)


def solve(stacks: Sequence[Stack], w: float, gradients: tuple[float, float], beta: float) -> Step:
    """The step that makes the layers' weights β times as many (Eq. 11).

    :param w: inner size / width
    :param gradients: L'_l, L'_w; the step depends on their ratio alone, so that the unit of L does not matter
    :raises UserError: in one line, if there is no such step
    """
    depth, width = gradients
    if not 1 < beta <= MAX_BETA:
        raise UserError(f"--beta {beta:g}: scaling up needs a number above 1, at most {MAX_BETA}")
    for name, gradient in zip(("L'_l", "L'_w"), gradients, strict=True):
        if not 0 <= gradient < math.inf:
            hint = "where more makes the model worse, --gradients takes 0 to leave it as it is"
            raise UserError(f"gradient {name} = {gradient:g} is not a number from 0 on: {hint}")
    a = depth * width * sum(stack.ffn for stack in stacks)
    b = depth * sum(s.attention + s.ffn * w for s in stacks) + width * sum(s.layers * s.ffn for s in stacks)
    c = (beta - 1) * weights(stacks, w)
    if not b > 0:
        raise UserError("gradients L'_l, L'_w: with both of them 0 no step makes the model larger")
    alpha = 2 * c / (b + math.sqrt(b * b + 4 * a * c))  # the positive root, written without cancellation
    if not math.isfinite(alpha):
        raise UserError(f"gradients: {depth:g} and {width:g} are beyond double precision")
    return Step(alpha, alpha * depth, alpha * width)


def released_step(stacks: Sequence[Stack], w: float, gradients: tuple[float, float], beta: float) -> Step:
    """What the released solver prints first: the whole α whose ratio is closest to β."""
    alpha = solve(stacks, w, gradients, beta).alpha
    whole = [Step(a, a * gradients[0], a * gradients[1]) for a in (math.floor(alpha), math.ceil(alpha))]
    return min(whole, key=lambda step: abs(growth(stacks, w, step) - beta))


@dataclass(frozen=True)
class Size:
    """The size of an architecture, and what Eq. 8 needs to know of it.

    :param stacks: ``encoder`` and ``decoder``, those that have layers
    :param inner: of the feed-forward networks
    """

    stacks: dict[str, Stack]
    dim: int
    inner: int

    @property
    def ffn_ratio(self) -> float:
        """w"""
        return self.inner / self.dim

    def after(self, step: Step) -> Size:
        """The size after a step of whole numbers."""
        stacks = {name: replace(stack, layers=stack.layers + int(step.layers)) for name, stack in self.stacks.items()}
        return Size(stacks, self.dim, self.inner + int(step.ffn_ratio) * self.dim)

    def options(self) -> dict[str, int]:
        """As flags of fairseq-train, without their dashes."""
        layers = {f"{name}-layers": stack.layers for name, stack in self.stacks.items()}
        return layers | {f"{name}-ffn-embed-dim": self.inner for name in self.stacks}


def training_options(arch: str, flags: Sequence[str] = ()) -> argparse.Namespace:
    """All options of fairseq-train, from an architecture and flags that change it.

    :raises UserError: the architecture or a flag is unknown
    """
    from fairseq import options
    from fairseq.models import ARCH_MODEL_REGISTRY

    import ode_transformer.models  # noqa: F401  (registers the architectures)

    if arch not in ARCH_MODEL_REGISTRY:
        ours = ", ".join(sorted(name for name in ARCH_MODEL_REGISTRY if name.endswith("_tiny")))
        raise UserError(f"--arch {arch}: no architecture of this name; there are, for example, {ours}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # argparse would print the some 200 flags of fairseq-train
            return options.parse_args_and_arch(options.get_training_parser(), ["DATA", "--arch", arch, *flags])
    except SystemExit:
        reason = said.getvalue().strip().rpartition("error: ")[2]
        raise UserError(f"flags of fairseq-train after --: {reason}") from None


def bare(args: argparse.Namespace, dictionaries: tuple[int, int] = (4, 4), **changed: Any) -> Any:
    """The model of these options, some of them changed, on the meta device: sizes without values."""
    import torch

    from ode_transformer.models.bare import bare_model

    try:
        with torch.device("meta"):
            return bare_model(argparse.Namespace(**(vars(args) | changed)), *dictionaries)
    except (AttributeError, ValueError) as error:
        raise UserError(f"--arch {args.arch}: not built as a translation model: {error}") from error


def size_of(args: argparse.Namespace) -> Size:
    """The size of the model of these options; A and F are counted in the model itself.

    :raises UserError: Eq. 8 cannot describe it
    """
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel

    both = issubclass(ARCH_MODEL_REGISTRY[args.arch], FairseqEncoderDecoderModel)
    if not both or not hasattr(args, "decoder_ffn_embed_dim"):
        raise UserError(f"--arch {args.arch}: not an architecture with an encoder and a decoder")
    names = [name for name in ("encoder", "decoder") if getattr(args, f"{name}_layers")]
    widths = {(getattr(args, f"{name}_embed_dim"), getattr(args, f"{name}_ffn_embed_dim")) for name in names}
    if len(widths) != 1:
        raise UserError(f"--arch {args.arch}: encoder and decoder have to be equally wide, Eq. 8 has one e and one w")
    ((dim, inner),) = widths
    stacks = {}
    for name in names:
        layers = getattr(args, f"{name}_layers")
        of_a_layer = []  # as a difference of stacks, because a depth-wise LSTM keeps part of it beside its layers
        for n in (inner, 2 * inner):
            wide = {"encoder_ffn_embed_dim": n, "decoder_ffn_embed_dim": n}
            less, more = (bare(args, **wide, **{f"{name}_layers": count}) for count in (layers, layers + 1))
            of_a_layer.append(_matrices(getattr(more, name)) - _matrices(getattr(less, name)))
        all_of_it, twice = of_a_layer
        ffn = (twice - all_of_it) / inner / dim
        stacks[name] = Stack(layers, all_of_it / dim**2 - ffn * inner / dim, ffn)
    return Size(stacks, dim, inner)


def _matrices(stack: Any) -> int:
    """Weights of a stack's linear maps, without biases, layer normalisation, positions and gates: Eq. 8."""
    from torch import nn

    maps = {name: module for name, module in stack.named_modules() if isinstance(module, nn.Linear)}
    return sum(module.weight.numel() for name, module in maps.items() if ".coefficients." not in name)


def parameters(model: Any) -> tuple[int, int]:
    """All parameters, and those that belong to no dictionary's rows."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    rows = sum(n for name, n in sizes.items() if "embed_tokens" in name or "output_projection" in name)
    return sum(sizes.values()), sum(sizes.values()) - rows


def report(
    size: Size,
    gradients: tuple[float, float],
    beta: float,
    args: argparse.Namespace | None = None,
    dictionaries: tuple[int, int] | None = None,
) -> list[str]:
    """The solution, the rounded size, and where options are given its flags and what it really has, a line each.

    :param args: options of the model that is to be scaled
    :param dictionaries: sizes of the source's and the target's
    :raises UserError: there is no solution
    """
    stacks, w = tuple(size.stacks.values()), size.ffn_ratio
    step = solve(stacks, w, gradients, beta)
    released = released_step(stacks, w, gradients, beta)
    new = size.after(step.rounded())
    residual = abs(growth(stacks, w, released) - beta)
    lines = [
        f"alpha = {step.alpha:.3f}, Delta l = {step.layers:.3f}, Delta w = {step.ffn_ratio:.3f}",
        f"released search over whole alpha: alpha = {released.alpha:.0f}, Delta l = {released.layers:.2f}, "
        f"Delta w = {released.ffn_ratio:.2f}, |ratio - beta| = {residual:.4f}",
        f"rounded: {' + '.join(str(stack.layers) for stack in new.stacks.values())} layers, w = {new.ffn_ratio:g}; "
        f"P grows {growth(stacks, w, step.rounded()):.3f} times",
    ]
    if args is None:
        return lines
    lines.append(f"flags: --arch {args.arch} " + " ".join(f"--{name} {value}" for name, value in new.options().items()))
    changed = {name.replace("-", "_"): value for name, value in new.options().items()}
    before, after = (parameters(bare(args, dictionaries or (4, 4), **more)) for more in ({}, changed))
    lines.append(
        f"parameters without embeddings: {before[1]:,} -> {after[1]:,}, {after[1] / before[1]:.3f} times as many"
    )
    if dictionaries is not None:
        lines.append(f"with embeddings: {before[0]:,} -> {after[0]:,}, {after[0] / before[0]:.3f} times as many")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer scale``."""
    parser.add_argument("--arch", metavar="NAME", help="registered architecture, whose sizes are scaled")
    parser.add_argument("--layers", type=positive_int, metavar="L", help="instead: joint layers of Eq. 8")
    parser.add_argument("--ffn-ratio", type=float, metavar="W", help="and their inner size / width")
    parser.add_argument(
        "--gradients",
        type=float,
        nargs=2,
        required=True,
        metavar=("L'_l", "L'_w"),
        help="of the performance by depth and by width, as scripts/scale.sh measures them",
    )
    parser.add_argument("--beta", type=float, default=2.0, help="how many times as many parameters (default: 2)")
    parser.add_argument(
        "--dictionaries",
        type=positive_int,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="their sizes, special symbols included: to count with embeddings",
    )
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="of fairseq-train that change the architecture")


def run(args: argparse.Namespace) -> int:
    """Print the solution of Eq. 11 and the flags of the scaled architecture."""
    logging.disable(logging.INFO)  # fairseq tells what it could not import; asked for is the solution
    gradients = tuple(args.gradients)
    if args.arch is None:
        if args.layers is None or args.ffn_ratio is None or not 0 < args.ffn_ratio < math.inf:
            raise UserError("say what to scale: --arch, or --layers and a positive --ffn-ratio")
        if args.dictionaries or args.flags:
            raise UserError("--dictionaries and flags of fairseq-train go with --arch")
        lines = report(Size({"decoder": Stack(args.layers)}, 1, args.ffn_ratio), gradients, args.beta)
    else:
        if args.layers is not None or args.ffn_ratio is not None:
            raise UserError("--layers and --ffn-ratio are read from --arch: change them by flags after --")
        options = training_options(args.arch, args.flags)
        dictionaries = tuple(args.dictionaries) if args.dictionaries else None
        lines = report(size_of(options), gradients, args.beta, options, dictionaries)
    print("\n".join(lines))
    return 0
