"""Choice of what moves a stack of layers through depth. Which options go together: :mod:`.compatibility`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ode_transformer.nn.attention_scores import AttentionChoice
from ode_transformer.nn.compatibility import refusal
from ode_transformer.nn.context import SELF_ATTENTIONS, SubLayerKind
from ode_transformer.nn.depth_wise_lstm import LSTM, LSTMChoice
from ode_transformer.nn.layer import FUNCTIONS, Group
from ode_transformer.nn.options import Choice, option
from ode_transformer.numerics import (
    COEFFICIENTS,
    GATE_STARTS,
    GATE_SUMS,
    GATES,
    LEARNED,
    PROJECTED,
    RECURRENCES,
    SPLITTINGS,
    ButcherTableau,
    Recurrence,
    get_tableau,
    tableau_names,
)

# Which sub-layers are stepped (ODE Transformer 2022, Figure 4): merged, each alone, or one of them beside plain others.
SCOPES = ("san+ffn", "san/ffn", "san", "ffn")
_STEPPED_ALONE = {"san": SELF_ATTENTIONS, "ffn": (SubLayerKind.FEED_FORWARD,)}


def depth_schemes() -> tuple[str, ...]:
    """Return the names of all schemes: Butcher tableaus with their aliases, recurrences, the depth-wise LSTM."""
    return (*tableau_names(), *RECURRENCES, LSTM)


_RUNGE_KUTTA: dict[str, Any] = {
    "read_by": lambda choice: isinstance(choice.rule, ButcherTableau),
    "needs": "a Runge–Kutta scheme",
}
_STAGES: dict[str, Any] = {"read_by": lambda choice: choice.stages > 1, "needs": "a scheme of several stages"}
_FEED_FORWARD: dict[str, Any] = {
    "read_by": lambda choice: not choice.is_lstm,
    "needs": "a layer that has a feed-forward network",
}
_OF_FAIRSEQ: dict[str, Any] = {"own_flag_only": True, "fairseqs": True, "remembered": False}


@dataclass(frozen=True)
class DepthChoice(Choice):
    """Options of one stack of layers, which go together. An option stands after those that it depends on.

    :raises ValueError: they do not go together, or one has no effect; says why in one line
    """

    flag_prefix: ClassVar[str] = "ode-"

    scheme: str = option(
        "euler",
        "scheme that steps the layers; rk2 is Heun's method, whose stages the architectures *_rk2 weigh by a gate",
        values=depth_schemes,
        own_flag_only=True,
    )
    coefficients: str = option(
        "tableau",
        "weights of the stages' increments",
        values=lambda: tuple(COEFFICIENTS),
        read_by=lambda choice: choice.weighed_count > 0,
        needs="a scheme whose stages have weights",
        short_for=lambda choice: choice.weighed_count > 1,
        short_needs="a scheme whose stages have weights, or, for a single stage, with the name of a stack in front",
    )
    share_coefficients: bool = option(
        False,
        "one set of coefficients for a stack, as released, instead of one for each layer",
        read_by=lambda choice: choice.coefficients in LEARNED,
        needs="learned coefficients",
        remembered=False,
    )
    gate_sum: str = option(
        "one",
        "sum of a gate's weights; stages: as many as a step has (ours)",
        values=lambda: GATE_SUMS,
        read_by=lambda choice: choice.coefficients in GATES,
        needs=f"coefficients {' or '.join(GATES)}",
    )
    gate_start: str = option(
        "scheme",
        "a gate (or sigmoid, tanh) starts as the scheme, or by chance as released",
        values=lambda: GATE_STARTS,
        read_by=lambda choice: choice.coefficients in PROJECTED,
        needs=f"coefficients {', '.join(PROJECTED)}",
        remembered=False,
    )
    function: str = option(
        "increment",
        "F of a step: what a layer adds, or the layer's output (released)",
        values=lambda: FUNCTIONS,
        **_RUNGE_KUTTA,
    )
    scope: str = option(
        "san+ffn",
        "which sub-layers are stepped: merged, each, or one of them",
        values=lambda: SCOPES,
        flag="ode-function-scope",
        **_FEED_FORWARD,
    )
    steps: int = option(1, "steps for each layer, each 1/N as long", another=2, interval="positive", **_RUNGE_KUTTA)
    step_size: float = option(
        1.0,
        "how far a layer steps: y + X F(y) instead of y + F(y) (ours)",
        another=2.0,
        interval="positive",
        **_RUNGE_KUTTA,
    )
    stage_parameters: str = option(
        "shared",
        "separate: a copy of the layer for each stage (2022, footnote 4)",
        values=lambda: ("shared", "separate"),
        fixed=True,
        exported=True,
        **_STAGES,
    )
    middle_layers: int = option(
        0,
        "step only the N layers in the middle of a stack by its scheme of several stages, the others once; 0: all",
        another=1,
        interval="non-negative",
        exported=True,
        **_STAGES,
    )
    splitting: str = option(
        "lie-trotter",
        "lie-trotter: a Transformer layer; strang: Macaron",
        values=lambda: tuple(SPLITTINGS),
        flag="layer-splitting",
        fixed=True,
        **_FEED_FORWARD,
    )
    normalize_step: bool = option(
        False,
        "normalise what a step adds to y",
        read_by=lambda c: isinstance(c.rule, ButcherTableau) or getattr(c.rule, "normalizes_step", False),
        needs="a Runge–Kutta scheme or momentum",
    )
    normalize_before: bool = option(
        True,
        "pre-norm; in a depth-wise LSTM, attentions read LN(y)",
        flag="normalize-before",
        another=False,
        **_OF_FAIRSEQ,
    )
    history: str = option(
        "none",
        "how the layers read all earlier layers: none, their mean (dense) or learned weights (dlcl)",
        values=lambda: ("none", "dense", "dlcl"),
        flag="layer-history",
        own_flag_only=True,
        remembered=False,
    )
    layerdrop: float = option(
        0.0, "probability with which fairseq would leave out layers", flag="layerdrop", another=0.1, **_OF_FAIRSEQ
    )
    value_residual: str = option(
        "none",
        "add the first layer's values to those of later layers",
        values=lambda: ("none", "mean", "learned"),
        flag="value-residual",
    )
    attention: AttentionChoice = option(AttentionChoice(), "variant of the self-attention")
    lstm: LSTMChoice = option(
        LSTMChoice(), "depth-wise LSTM", read_by=lambda choice: choice.is_lstm, needs=f"scheme {LSTM}"
    )

    # Accept options that change nothing, as those of a checkpoint or of a flag for both stacks.
    accepts_idle: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        reason = refusal(self)
        if reason is not None:
            raise ValueError(reason)

    @property
    def rule(self) -> ButcherTableau | Recurrence | None:
        """Tableau or recurrence of the scheme; None for the depth-wise LSTM."""
        return None if self.is_lstm else RECURRENCES.get(self.scheme) or get_tableau(self.scheme)

    @property
    def is_lstm(self) -> bool:
        """True for the depth-wise LSTM."""
        return self.scheme == LSTM

    @property
    def stages(self) -> int:
        """Number of evaluations of F in one step."""
        return 1 if self.rule is None else self.rule.stages

    @property
    def weighed_stages(self) -> ButcherTableau | None:
        """Tableau whose stages coefficients weigh, under the name of the scheme; None if the scheme has none."""
        if isinstance(self.rule, Recurrence):
            predictor = self.rule.predictor
            return None if predictor is None else replace(predictor, name=self.scheme, aliases=())
        return self.rule

    @property
    def weighed_count(self) -> int:
        """Number of stages that coefficients can weigh; plain repetition has no weights to choose."""
        tableau = self.weighed_stages
        return tableau.stages if tableau is not None and tableau.order > 0 else 0

    @property
    def has_learned_weights(self) -> bool:
        """True if coefficients, or weights of the scheme's equation, are learned."""
        return learns_weights(self.scheme, self.coefficients)

    @property
    def is_residual(self) -> bool:
        """True if a step is the residual layer, however the layer is divided into blocks."""
        whole_step = (
            isinstance(self.rule, ButcherTableau) and self.rule.b == (1.0,) and self.steps == self.step_size == 1
        )
        return whole_step and not self.normalize_step and not self.has_learned_weights

    @property
    def applies_layers(self) -> bool:
        """True if nothing is stepped: one stage of ``layer-output`` is the layer itself, as in the released code."""
        return isinstance(self.rule, ButcherTableau) and self.stages == 1 and self.function == "layer-output"

    @property
    def copies(self) -> int:
        """Number of copies of the parameters of a stepped sub-layer."""
        return self.stages if self.stage_parameters == "separate" else 1

    @property
    def normalizes_sublayers(self) -> bool:
        """True if sub-layers have a layer normalisation.

        A post-norm LSTM has no sum with a residual to normalise, and some recurrences normalise by themselves.
        """
        if isinstance(self.rule, Recurrence):
            return not self.rule.normalizes
        return self.normalize_before or not self.is_lstm

    @property
    def stepped_scope(self) -> str:
        """Scope that the scheme steps: ``scope``, unless a recurrence allows a single one."""
        return "san/ffn" if isinstance(self.rule, Recurrence) and self.rule.each_sublayer else self.scope

    def stepped_layers(self, layers: int) -> range:
        """Return the indices of the layers that the scheme steps."""
        stepped = self.middle_layers or layers
        first = (layers - stepped) // 2
        return range(first, first + stepped)

    def grouping(self, kinds: Mapping[str, SubLayerKind]) -> list[Group]:
        """Divide the sub-layers of a layer into blocks.

        A depth-wise LSTM steps the attentions of a layer and has no feed-forward network.

        :param kinds: kind of each sub-layer by name, in the order in which they act
        """
        if self.is_lstm:
            return [((name,), True) for name, kind in kinds.items() if kind is not SubLayerKind.FEED_FORWARD]
        if self.applies_layers:
            return [(tuple(kinds), False)]
        scope = self.stepped_scope
        if scope == "san+ffn":
            return [(tuple(kinds), True)]
        return [((name,), scope == "san/ffn" or kind in _STEPPED_ALONE[scope]) for name, kind in kinds.items()]


def learns_weights(scheme: str, coefficients: str) -> bool:
    """Return whether the scheme with these coefficients has weights that are learned."""
    return coefficients in LEARNED or (scheme in RECURRENCES and RECURRENCES[scheme].trained)
