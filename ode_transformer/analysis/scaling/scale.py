"""``ode-transformer scale``: a larger architecture, by one step along two measured gradients."""

from __future__ import annotations

import argparse
import math

from ode_transformer.analysis.scaling.architectures import count_parameters, meta_model, model_size, training_options
from ode_transformer.analysis.scaling.equations import ModelSize, StackSize, growth, released_step, solve
from ode_transformer.support.arguments import add_train_flags, positive_int
from ode_transformer.support.errors import UserError


def solution_lines(size: ModelSize, gradients: tuple[float, float], beta: float) -> list[str]:
    """Describe the solution of Eq. 11, the released solver's and the rounded size, a line each.

    :raises UserError: there is no solution
    """
    stacks, w = tuple(size.stacks.values()), size.ffn_ratio
    step, released = solve(stacks, w, gradients, beta), released_step(stacks, w, gradients, beta)
    new_size = size.enlarged(step.rounded())
    residual = abs(growth(stacks, w, released) - beta)
    return [
        f"alpha = {step.alpha:.3f}, Delta l = {step.layers:.3f}, Delta w = {step.ffn_ratio:.3f}",
        f"released search over whole alpha: alpha = {released.alpha:.0f}, Delta l = {released.layers:.2f}, "
        f"Delta w = {released.ffn_ratio:.2f}, |ratio - beta| = {residual:.4f}",
        f"rounded: {' + '.join(str(stack.layers) for stack in new_size.stacks.values())} layers, "
        f"w = {new_size.ffn_ratio:g}; P grows {growth(stacks, w, step.rounded()):.3f} times",
    ]


def architecture_lines(
    args: argparse.Namespace,
    gradients: tuple[float, float],
    beta: float,
    dictionaries: tuple[int, int] | None = None,
) -> list[str]:
    """Describe the solution for an architecture, its new flags and the parameter counts of both models, a line each.

    :param args: options of fairseq-train for the model that is to be scaled
    :param dictionaries: sizes of the source's and the target's dictionary, to count with embeddings
    :raises UserError: Eq. 8 cannot describe the model, or there is no solution
    """
    size = model_size(args)
    lines = solution_lines(size, gradients, beta)
    step = solve(tuple(size.stacks.values()), size.ffn_ratio, gradients, beta)
    flags = size.enlarged(step.rounded()).options()
    lines.append(f"flags: --arch {args.arch} " + " ".join(f"--{name} {value}" for name, value in flags.items()))
    changes = {name.replace("-", "_"): value for name, value in flags.items()}
    models = (meta_model(args, options, dictionaries or (4, 4)) for options in ({}, changes))
    old, new = map(count_parameters, models)
    lines.append(f"parameters without embeddings: {old[1]:,} -> {new[1]:,}, {new[1] / old[1]:.3f} times as many")
    if dictionaries is not None:
        lines.append(f"with embeddings: {old[0]:,} -> {new[0]:,}, {new[0] / old[0]:.3f} times as many")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer scale``."""
    parser.add_argument("--arch", metavar="NAME", help="registered architecture to scale")
    parser.add_argument("--layers", type=positive_int, metavar="L", help="joint layers of Eq. 8, instead of --arch")
    parser.add_argument("--ffn-ratio", type=float, metavar="W", help="inner size / width of these layers")
    parser.add_argument(
        "--gradients",
        type=float,
        nargs=2,
        required=True,
        metavar=("L'_l", "L'_w"),
        help="gradients of the performance by depth and by width; scripts/measure_scaling.sh measures them",
    )
    parser.add_argument("--beta", type=float, default=2.0, help="how many times as many parameters (default: 2)")
    parser.add_argument(
        "--dictionaries",
        type=positive_int,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="sizes of the dictionaries with their special symbols, to count with embeddings",
    )
    add_train_flags(parser, "flags of fairseq-train that change the architecture")


def run(args: argparse.Namespace) -> int:
    """Print the solution of Eq. 11 and, for an architecture, the flags of the larger one."""
    gradients = tuple(args.gradients)
    if args.arch is None:
        if args.layers is None or args.ffn_ratio is None or not 0 < args.ffn_ratio < math.inf:
            raise UserError("say what to scale: --arch, or --layers and a positive --ffn-ratio")
        if args.dictionaries or args.train_flags:
            raise UserError("--dictionaries and flags of fairseq-train go with --arch")
        size = ModelSize({"decoder": StackSize(args.layers)}, 1, args.ffn_ratio)
        lines = solution_lines(size, gradients, args.beta)
    else:
        if args.layers is not None or args.ffn_ratio is not None:
            raise UserError("--layers and --ffn-ratio are read from --arch: change them by flags after --")
        dictionaries = tuple(args.dictionaries) if args.dictionaries else None
        lines = architecture_lines(training_options(args.arch, args.train_flags), gradients, args.beta, dictionaries)
    print("\n".join(lines))
    return 0
