"""Choice of what moves a stack of layers through depth. Which options go together: :mod:`.compatibility`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ode_transformer.nn.attention_scores import AttentionChoice
from ode_transformer.nn.context import SubLayerKind
from ode_transformer.nn.depth_wise_lstm import LSTM, LSTMChoice
from ode_transformer.nn.layer import Group, groups
from ode_transformer.numerics import (
    LEARNED,
    RECURRENCES,
    STEP_LENGTHS,
    ButcherTableau,
    Recurrence,
    get_tableau,
    tableau_names,
)

STAGE_PARAMETERS = ("shared", "separate")


def depth_schemes() -> tuple[str, ...]:
    """Return the names of all schemes: Butcher tableaus with their aliases, recurrences, the depth-wise LSTM."""
    return (*tableau_names(), *RECURRENCES, LSTM)


@dataclass(frozen=True)
class DepthChoice:
    """Options of one stack of layers.

    :param scheme: one of :func:`depth_schemes`
    :param coefficients: key of ``COEFFICIENTS``
    :param share_coefficients: one set for the stack instead of one for each block
    :param gate_sum: one of ``GATE_SUMS``: the sum of the weights of a gate
    :param gate_start: one of ``GATE_STARTS``: where W of a gate, of sigmoid and of tanh starts
    :param function: one of ``FUNCTIONS``: the function F that the scheme steps
    :param scope: one of ``SCOPES``: which sub-layers are stepped
    :param steps: N steps of size h/N for each block
    :param step_size: h
    :param stage_parameters: ``separate`` gives every stage its own copy of the layer (ODE Transformer 2022, footnote 4)
    :param splitting: key of ``SPLITTINGS``: which sub-layers a layer has
    :param lstm: options of the depth-wise LSTM
    :param history: one of ``HISTORIES``
    :param normalize_before: the layers are pre-norm; in a depth-wise LSTM, whether its attentions read LN(y) or y
    :param layerdrop: probability with which fairseq would leave out layers
    :param attention: variant of the self-attention
    :param middle_layers: number of layers in the middle of the stack that the scheme steps, while the others are
        applied once, as by Euler; 0 for all
    :param normalize_step: normalise what a step adds
    :param value_residual: one of ``VALUE_RESIDUALS``: what the first layer's values add to those of later layers
    """

    scheme: str = "euler"
    coefficients: str = "tableau"
    share_coefficients: bool = False
    gate_sum: str = "one"
    gate_start: str = "scheme"
    function: str = "increment"
    scope: str = "san+ffn"
    steps: int = 1
    step_size: float = 1.0
    stage_parameters: str = "shared"
    splitting: str = "lie-trotter"
    lstm: LSTMChoice = LSTMChoice()
    history: str = "none"
    normalize_before: bool = True
    layerdrop: float = 0.0
    attention: AttentionChoice = AttentionChoice()
    middle_layers: int = 0
    normalize_step: bool = False
    value_residual: str = "none"

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
    def predictor(self) -> ButcherTableau | None:
        """Tableau whose stages a predictor–corrector scheme corrects; None for other schemes."""
        return self.rule.predictor if isinstance(self.rule, Recurrence) else None

    @property
    def weighed_stages(self) -> ButcherTableau | None:
        """Tableau whose stages coefficients weigh, under the name of the scheme; None if the scheme has none."""
        if self.predictor is not None:
            return replace(self.predictor, name=self.scheme, aliases=())
        return self.rule if isinstance(self.rule, ButcherTableau) else None

    @property
    def has_stage_weights(self) -> bool:
        """True if coefficients weigh the stages of a step; plain repetition has no weights to choose."""
        tableau = self.weighed_stages
        weighs_one = tableau is not None and tableau.stages == 1 and self.coefficients in STEP_LENGTHS
        return weighs_one or self.weighs_several_stages

    @property
    def weighs_several_stages(self) -> bool:
        """True if the scheme has several stages that coefficients can weigh."""
        tableau = self.weighed_stages
        return tableau is not None and tableau.stages > 1 and tableau.order > 0

    @property
    def has_learned_weights(self) -> bool:
        """True if coefficients, or weights of the scheme's equation, are learned."""
        return learns_weights(self.scheme, self.coefficients)

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

        With one stage of the function ``layer-output`` nothing is stepped, as in the released code: the layer is
        applied as it is. A depth-wise LSTM steps the attentions of a layer and has no feed-forward network.

        :param kinds: kind of each sub-layer by name, in the order in which they act
        """
        if self.is_lstm:
            return [((name,), True) for name, kind in kinds.items() if kind is not SubLayerKind.FEED_FORWARD]
        if self.function == "layer-output" and self.stages == 1:
            return [(tuple(kinds), False)]
        return groups(self.stepped_scope, kinds)

    def without_unused_options(self) -> DepthChoice:
        """Return a copy in which every option that this scheme ignores has its default."""
        return self._with_defaults(set(OPTIONS_BY_USE) - self.uses)

    def without_options_of(self, others: Iterable[DepthChoice]) -> DepthChoice:
        """Return a copy in which every option that this scheme ignores, but another choice uses, has its default."""
        return self._with_defaults(set().union(*(other.uses for other in others)) - self.uses)

    @property
    def uses(self) -> set[str]:
        """Keys of ``OPTIONS_BY_USE`` whose options this scheme reads."""
        used = {
            "stage weights": self.has_stage_weights,
            "stages": self.stages > 1,
            "steps": isinstance(self.rule, ButcherTableau) or self.rule is not None and self.rule.normalizes_step,
            "lstm": self.is_lstm,
        }
        return {use for use, is_used in used.items() if is_used}

    def _with_defaults(self, uses: Iterable[str]) -> DepthChoice:
        options = [option for use in uses for option in OPTIONS_BY_USE[use]]
        return replace(self, **{option: getattr(DepthChoice(), option) for option in options})


# Options that only some schemes read, by what these schemes have.
OPTIONS_BY_USE = {
    "stage weights": ("coefficients", "gate_sum", "gate_start", "share_coefficients"),
    "stages": ("stage_parameters", "middle_layers"),
    "steps": ("normalize_step",),
    "lstm": ("lstm",),
}


def learns_weights(scheme: str, coefficients: str) -> bool:
    """Return whether the scheme with these coefficients has weights that are learned."""
    return coefficients in LEARNED or (scheme in RECURRENCES and RECURRENCES[scheme].trained)
