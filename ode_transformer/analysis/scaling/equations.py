"""One step of model scaling, solved in closed form (Reformer, Li et al. 2020, Eqs. 8 and 11).

    P(l, w) = Σ l(A + F·w)                        weights of the layers in units of e²              (8)
    P(l + αL'_l, w + αL'_w) = β·P(l, w)           one step along the gradient to β times as many    (11)

l: layers of a stack; e: width; w: inner size of the feed-forward networks / e; L: performance on the validation set. A
layer has A matrices of size e × e in its attentions and F of size e × we in its feed-forward networks. The paper's
Eq. 8, 2l(4 + 2w), is that of joint layers, A = 8 and F = 4; an encoder or PreNet layer has A = 4 and F = 2, a
Transformer's decoder layer A = 8 and F = 2. Written out, Eq. 11 is quadratic in α:

    (ΣF)·L'_l·L'_w·α² + (Σ(A + F·w)·L'_l + (Σl·F)·L'_w)·α − (β − 1)·P(l, w) = 0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ode_transformer.support.errors import UserError

MAX_BETA = 100


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

    def rounded(self) -> ScalingStep:
        """Return the step in whole layers and whole multiples of e; like the paper, it rounds the step, not the sum."""
        return ScalingStep(self.alpha, round(self.layers), round(self.ffn_ratio))


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

    def enlarged(self, step: ScalingStep) -> ModelSize:
        """Return the size after a step of whole numbers."""
        stacks = {name: replace(stack, layers=stack.layers + int(step.layers)) for name, stack in self.stacks.items()}
        return ModelSize(stacks, self.dim, self.inner + int(step.ffn_ratio) * self.dim)

    def options(self) -> dict[str, float]:
        """Return the size as flags of fairseq-train, without their dashes."""
        layers = {f"{name}-layers": stack.layers for name, stack in self.stacks.items()}
        return layers | {f"{name}-ffn-embed-dim": self.inner for name in self.stacks}


def layer_weights(stacks: Sequence[StackSize], w: float, more_layers: float = 0.0) -> float:
    """Return P(l, w) in units of e², with ``more_layers`` layers added to every stack (Eq. 8)."""
    return sum((stack.layers + more_layers) * (stack.attention + stack.ffn * w) for stack in stacks)


def growth(stacks: Sequence[StackSize], w: float, step: ScalingStep) -> float:
    """Return the ratio of P after a step to P before it; Eq. 11 sets it to β."""
    return layer_weights(stacks, w + step.ffn_ratio, step.layers) / layer_weights(stacks, w)


def check_beta(beta: float) -> None:
    """Refuse a growth factor that Eq. 11 cannot be solved for.

    :raises UserError: names ``--beta``
    """
    if not 1 < beta <= MAX_BETA:
        raise UserError(f"--beta {beta:g}: scaling up needs a number above 1, at most {MAX_BETA}")


def solve(stacks: Sequence[StackSize], w: float, gradients: tuple[float, float], beta: float) -> ScalingStep:
    """Return the step that multiplies the weights of the layers by β (Eq. 11).

    :param w: inner size / width
    :param gradients: L'_l, L'_w; the step depends on their ratio alone, so the unit of L does not matter
    :raises UserError: there is no such step
    """
    depth, width = gradients
    check_beta(beta)
    for name, gradient in zip(("L'_l", "L'_w"), gradients, strict=True):
        if not 0 <= gradient < math.inf:
            hint = "where more makes the model worse, --gradients takes 0 to leave it as it is"
            raise UserError(f"gradient {name} = {gradient:g} is not a number from 0 on: {hint}")
    a = depth * width * sum(stack.ffn for stack in stacks)
    b = depth * sum(s.attention + s.ffn * w for s in stacks) + width * sum(s.layers * s.ffn for s in stacks)
    c = (beta - 1) * layer_weights(stacks, w)
    if not b > 0:
        raise UserError("gradients L'_l, L'_w: with both of them 0 no step makes the model larger")
    alpha = 2 * c / (b + math.sqrt(b * b + 4 * a * c))  # the positive root, written without cancellation
    if not math.isfinite(alpha):
        raise UserError(f"gradients: {depth:g} and {width:g} are beyond double precision")
    return ScalingStep(alpha, alpha * depth, alpha * width)


def released_step(stacks: Sequence[StackSize], w: float, gradients: tuple[float, float], beta: float) -> ScalingStep:
    """Return the step with the whole α whose growth is closest to β, which the released solver prints first."""
    alpha = solve(stacks, w, gradients, beta).alpha
    candidates = [ScalingStep(a, a * gradients[0], a * gradients[1]) for a in (math.floor(alpha), math.ceil(alpha))]
    return min(candidates, key=lambda step: abs(growth(stacks, w, step) - beta))
