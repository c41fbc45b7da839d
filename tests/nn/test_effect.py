"""Nothing without effect: an accepted value of an option changes what a stack computes, and every parameter is trained.

On a pairwise cover of all options, one option at a time is set back to its default. Parameters are drawn at random,
those of equal names equally; what acts on their first values is compared there.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from cover_for_tests import Combination, pairwise
from stacks_for_tests import ATTENTIONS, build_stack, draw_parameters, run_stack
from torch import Tensor, nn

from ode_transformer.nn import DepthChoice, GridChoice, StackShape, SubLayer, refusal
from ode_transformer.numerics import COEFFICIENTS, RECURRENCES, TABLEAUS

OPTIONS = DepthChoice.options()
# But for the limit of memory, which changes no number.
JOINT = {option.dest(): option for option in GridChoice.options().values() if option.name != "max_cells"}
SIZES: dict[str, Any] = {
    "activation": ("gelu", "tanh"),
    "encoder_positions": ("sinusoidal", "learned", "none"),
    "decoder_positions": ("sinusoidal", "learned", "none"),
    "scale_embedding": (True, False),
    "normalize_embedding": (False, True),
    "final_norm": (True, False),
}
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "word_dropout")
SCHEMES = [*(tableau.name for tableau in TABLEAUS), *RECURRENCES, "dlstm"]  # each once, without other names
AXES: dict[str, Any] = {"kind": tuple(ATTENTIONS), "layers": (1, 2)}
AXES |= {name: option.samples() for name, option in OPTIONS.items()} | {"scheme": SCHEMES}
AXES |= {name: option.samples() for name, option in JOINT.items()} | SIZES
AXES |= {name: (0.0, 0.5) for name in DROPOUTS}
# Options that act on the first values of parameters or on their number, and those that act on random numbers.
STARTS = ("share_coefficients", "gate_start", "share", "forget_bias")
RANDOM = ("joint_dropout", *DROPOUTS)
EFFECT = 1e-4  # of the output
GRADIENT = 1e-10  # times a parameter, of the largest


class Excuse(NamedTuple):
    """A value that has no effect where ``applies`` says so."""

    option: str
    applies: Callable[[Combination], bool]
    reason: str


EXCUSES = (
    Excuse(
        "function",
        lambda parts: parts["scheme"] == "euler" and parts["normalize_before"],
        "recipes set the released function for all of their systems, and Euler's residual layer has it already",
    ),
    Excuse(
        "share_coefficients",
        lambda parts: 1 in (parts["layers"], parts["middle_layers"]),
        "recipes and studies set it for stacks of any depth, and one layer has nobody to share with",
    ),
    Excuse("share", lambda parts: parts["layers"] == 1, "as for shared coefficients"),
    Excuse(
        "activation_dropout",
        lambda parts: parts["hidden"] == "linear",
        "all architectures have it, and a hidden computation of one layer has no inner one",
    ),
    Excuse(
        "final_norm",
        lambda parts: not parts["normalize_before"],
        "fairseq's --no-decoder-final-norm, which a post-norm decoder does not read there either",
    ),
    Excuse(
        "joint_input",
        lambda parts: not parts["scale_embedding"] or parts["decoder_positions"] == "none",
        "it says whether positions are scaled as words are: there are none, or words are not scaled",
    ),
    Excuse(
        "scale_embedding",
        lambda parts: parts["normalize_embedding"],
        "fairseq's flags: a normalisation undoes the scale of words to which no positions of another scale are added",
    ),
)


def read_choice(parts: Combination) -> DepthChoice:
    """Return the choice of a combination."""
    return DepthChoice(**DepthChoice.arguments({name: parts[name] for name in OPTIONS}))


def is_allowed(parts: Combination) -> bool:
    """Tell whether the options go together, and with their stack."""
    is_grid = parts["kind"] == "grid"
    other = "decoder" if parts["kind"] == "encoder" else "encoder"
    if parts[f"{other}_positions"] != "sinusoidal" or (other == "decoder" and not parts["final_norm"]):
        return False
    if not is_grid and any(parts[name] != AXES[name][0] for name in JOINT):
        return False
    try:
        choice = read_choice(parts)
    except ValueError:
        return False
    if is_grid and (choice.splitting, choice.value_residual) != ("lie-trotter", "none"):
        return False
    return refusal(choice, StackShape(parts["layers"], ATTENTIONS[parts["kind"]])) is None


@cache
def cover() -> list[Combination]:
    """Return pairwise combinations, and all of the few options that a normalisation or Euler's method could undo."""
    defaults = {name: values[0] for name, values in AXES.items()} | {"kind": "language model", "layers": 1}
    weighed = {"normalize_step": [True], "scheme": SCHEMES, "coefficients": COEFFICIENTS}
    stepped = {name: AXES[name] for name in ("function", "scope", "splitting", "normalize_step")}
    products = (
        dict(zip(axes, values, strict=True)) for axes in (weighed, stepped) for values in product(*axes.values())
    )
    return [*pairwise(AXES, is_allowed), *filter(is_allowed, (defaults | parts for parts in products))]


def build(parts: Combination, random: bool = False) -> nn.Module:
    """Build the stack of a combination, without dropout unless it is the subject."""
    torch.manual_seed(0)
    grid = GridChoice(**{option.name: parts[name] for name, option in JOINT.items()})
    sizes = {name: parts[name] for name in SIZES} | {name: parts[name] if random else 0.0 for name in DROPOUTS}
    return build_stack(read_choice(parts), grid, parts["kind"], parts["layers"], **sizes)


def compute(stack: nn.Module, parts: Combination) -> Tensor:
    draw_parameters(stack)
    torch.manual_seed(0)
    return run_stack(stack, parts["kind"])


def changed(parts: Combination) -> dict[str, Any]:
    """Return the options that are not at their defaults."""
    return {name: value for name, value in parts.items() if value != AXES[name][0]}


def same_start(one: nn.Module, other: nn.Module) -> bool:
    """Tell whether two stacks start with equal parameters."""
    parameters = dict(one.named_parameters()), dict(other.named_parameters())
    return parameters[0].keys() == parameters[1].keys() and all(map(torch.equal, *(p.values() for p in parameters)))


def differs(one: Tensor, other: Tensor) -> bool:
    return float((one - other).norm() / other.norm()) > EFFECT


@torch.no_grad()
def has_effect(name: str, parts: Combination, output: Tensor) -> bool:
    """Tell whether an option changes what the stack with these options computes, or where it starts."""
    plain = parts | {name: AXES[name][0]}
    if name in STARTS:
        return not same_start(build(plain), build(parts))
    if name in RANDOM:
        one, other = (
            combination | {"dropout": 0.5} if name == "joint_dropout" else combination for combination in (plain, parts)
        )
        return differs(compute(build(one, random=True), one), compute(build(other, random=True), other))
    return differs(compute(build(plain), plain), output)


@torch.no_grad()
def has_effect_of_fractions(stack: nn.Module, parts: Combination, output: Tensor) -> bool:
    """Tell whether it matters that sub-layers take a fraction of a step; changes the stack."""
    fractions = [module for module in stack.modules() if isinstance(module, SubLayer) and module.step_fraction != 1]
    for module in fractions:
        module.step_fraction = 1.0
    return not fractions or differs(run_stack(stack, parts["kind"]), output)


def untrained(stack: nn.Module, output: Tensor) -> Iterator[str]:
    """Yield the parameters without a gradient."""
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=output.dtype)
    (weights * output).sum().backward()
    parameters = {name: p for name, p in stack.named_parameters() if not name.startswith("output_projection")}
    gradients = {name: torch.zeros(()) if p.grad is None else p.grad for name, p in parameters.items()}
    sizes = {name: (gradients[name].norm() * p.detach().norm()).item() for name, p in parameters.items()}
    yield from (name for name, size in sizes.items() if size <= GRADIENT * max(sizes.values()))


@pytest.mark.slow
def test_every_accepted_value_has_an_effect_and_every_parameter_a_gradient() -> None:
    failures, used = [], set()
    tested: set[Any] = set()  # pairs of an option that is set back and another one
    for parts in cover():
        stack = build(parts)
        output = compute(stack, parts)
        failures += [f"no gradient: {name} with {changed(parts)}" for name in untrained(stack, output)]
        without = [] if has_effect_of_fractions(stack, parts, output) else ["step fraction"]
        for name in changed(parts).keys() - {"kind", "layers"}:
            new = {(name, parts[name], other) for other in parts.items()} - tested
            if new and is_allowed(parts | {name: AXES[name][0]}):
                tested |= new
                without += [] if has_effect(name, parts, output) else [name]
        for name in without:
            excuse = next((e for e in EXCUSES if e.option == name and e.applies(parts)), None)
            failures += [] if excuse else [f"no effect: {name} with {changed(parts)}"]
            used.add(excuse)
    assert "\n".join(failures) == ""
    assert [excuse for excuse in EXCUSES if excuse not in used] == []
