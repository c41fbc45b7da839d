"""The choice of parts: what moves a stack of layers through depth, and which parts go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ode_transformer.nn.depth_wise_lstm import (
    FIRST_CELLS,
    HIDDEN,
    LSTM,
    MERGES,
    SHARES,
    DepthWiseLSTM,
    HiddenSizes,
    LSTMChoice,
)
from ode_transformer.nn.layer import FUNCTIONS, SCOPES, Group, groups
from ode_transformer.nn.layer_history import HISTORIES, LayerHistory
from ode_transformer.nn.sublayers import SubLayerKind
from ode_transformer.numerics import (
    LEARNED,
    RECURRENCES,
    SPLITTINGS,
    ButcherTableau,
    DepthScheme,
    Recurrence,
    RungeKutta,
    build_coefficients,
    coefficients_refusal,
    get_tableau,
    scheme_names,
)

# Every name of a scheme: Butcher tableaus with their aliases, recurrences, the depth-wise LSTM.
SCHEMES = (*scheme_names(), *RECURRENCES, LSTM)
STAGE_PARAMETERS = ("shared", "separate")


@dataclass(frozen=True)
class DepthChoice:
    """How one stack of layers is moved through.

    :param scheme: one of ``SCHEMES``: name of a tableau or of a recurrence, or the depth-wise LSTM
    :param coefficients: key of ``COEFFICIENTS``
    :param share_coefficients: one set for the stack instead of one for each block
    :param function: one of ``FUNCTIONS``: what the scheme takes for F
    :param scope: one of ``SCOPES``: which sub-layers it steps
    :param steps: N steps of size 1/N for each block
    :param stage_parameters: ``separate`` gives every stage its own copy of the layer (ODE Transformer 2022, footnote 4)
    :param splitting: key of ``SPLITTINGS``: of which sub-layers a layer is made
    :param lstm: the parts of the depth-wise LSTM
    :param history: one of ``HISTORIES``
    :param normalize_before: the layers are pre-norm; of a depth-wise LSTM, whether its attentions read LN(y) or y
    :param layerdrop: probability with which fairseq would leave out layers
    :param max_relative_positions: clip distance of the relative positions, 0 for none
    :param relative_values: relative positions on the values too
    """

    scheme: str = "euler"
    coefficients: str = "tableau"
    share_coefficients: bool = False
    function: str = "increment"
    scope: str = "san+ffn"
    steps: int = 1
    stage_parameters: str = "shared"
    splitting: str = "lie-trotter"
    lstm: LSTMChoice = LSTMChoice()
    history: str = "none"
    normalize_before: bool = True
    layerdrop: float = 0.0
    max_relative_positions: int = 0
    relative_values: bool = False

    @property
    def rule(self) -> ButcherTableau | Recurrence | None:
        """What the table of tableaus or that of recurrences says of the scheme; None for the depth-wise LSTM."""
        return None if self.is_lstm else RECURRENCES.get(self.scheme) or get_tableau(self.scheme)

    @property
    def learned(self) -> bool:
        """Coefficients or weights are trained, and belong to the scheme that they were trained with."""
        return _learned(self.scheme, self.coefficients)

    @property
    def copies(self) -> int:
        """How many copies of its parameters a stepped sub-layer has."""
        return self.stages if self.stage_parameters == "separate" else 1

    @property
    def is_lstm(self) -> bool:
        return self.scheme == LSTM

    @property
    def normalizes(self) -> bool:
        """Sub-layers have a layer normalisation.

        Those of an LSTM have no sum with a residual to normalise, and some recurrences normalise by themselves.
        """
        if isinstance(self.rule, Recurrence):
            return not self.rule.normalizes
        return self.normalize_before or not self.is_lstm

    @property
    def stages(self) -> int:
        return 1 if self.rule is None else self.rule.stages

    @property
    def weighs(self) -> bool:
        """There are stages that coefficients can weigh."""
        return isinstance(self.rule, ButcherTableau) and self.stages > 1

    @property
    def blocks(self) -> str:
        """The scope that the scheme steps: some recurrences leave no choice."""
        return "san/ffn" if isinstance(self.rule, Recurrence) and self.rule.each_sublayer else self.scope

    def without_unused_options(self, weights: bool = True, stages: bool = True, lstm: bool = True) -> DepthChoice:
        """Without what concerns other schemes.

        :param weights: leave out what weighs stages, where the scheme has none to weigh
        :param stages: leave out what concerns several stages, where the scheme has one
        :param lstm: leave out what concerns the depth-wise LSTM, where the scheme is another
        """
        choice = self
        if weights and not self.weighs:
            choice = replace(choice, coefficients="tableau", share_coefficients=False)
        if stages and self.stages == 1:
            choice = replace(choice, stage_parameters="shared")
        if lstm and not self.is_lstm:
            choice = replace(choice, lstm=LSTMChoice())
        return choice

    def checkpoint_settings(self) -> dict[str, str]:
        """What parameters are trained for and do not show by themselves: a checkpoint keeps it.

        For the residual layer, one Euler step, scopes are the same, and in pre-norm functions are, too.
        """
        rule = self.rule
        residual = self.stages == self.steps == 1 and not isinstance(rule, Recurrence)
        trait = {
            "scheme": self.scheme if rule is None else rule.name,
            "coefficients": self.coefficients,
            "function": "increment" if residual and self.normalize_before else self.function,
            "scope": "san+ffn" if residual else self.blocks,
            "steps": str(self.steps),
            "stage_parameters": self.stage_parameters,
            "splitting": self.splitting,
        }
        return trait | {"first_cell": self.lstm.first_cell} if self.is_lstm else trait

    def grouping(self, kinds: Mapping[str, SubLayerKind]) -> list[Group]:
        """Divide the sub-layers of a layer into blocks.

        One stage of the function ``layer-output`` is the layer itself, as in the released code: y would be added once
        more for nothing. A depth-wise LSTM steps the attentions of a layer and has no feed-forward network beside them.

        :param kinds: kind of each sub-layer by name, in the order in which they act
        """
        if self.is_lstm:
            return [((name,), True) for name, kind in kinds.items() if kind is not SubLayerKind.FEED_FORWARD]
        if self.function == "layer-output" and self.stages == 1:
            return [(tuple(kinds), False)]
        return groups(self.blocks, kinds)


def _learned(scheme: str, coefficients: str) -> bool:
    return coefficients in LEARNED or (scheme in RECURRENCES and RECURRENCES[scheme].trained)


def refusal(choice: DepthChoice) -> str | None:
    """Why the parts of ``choice`` do not go together, in one line; None if they do.

    The one place that knows (beside :func:`refused_stack`, which asks it for two stacks): options are validated by it,
    the tests take their combinations from it, and the table in the documentation is made from it.
    """
    lstm = choice.lstm
    for what, value, known in (
        ("scheme", choice.scheme, SCHEMES),
        ("function", choice.function, FUNCTIONS),
        ("scope", choice.scope, SCOPES),
        ("stage parameters", choice.stage_parameters, STAGE_PARAMETERS),
        ("splitting", choice.splitting, tuple(SPLITTINGS)),
        ("layer history", choice.history, HISTORIES),
        ("hidden computation", lstm.hidden, HIDDEN),
        ("merge", lstm.merge, MERGES),
        ("sharing", lstm.share, SHARES),
        ("first cell", lstm.first_cell, FIRST_CELLS),
    ):
        if value not in known:
            return f"unknown {what} {value!r}; known are {', '.join(known)}"
    if choice.is_lstm:
        reason = _refused_lstm(choice)
    elif isinstance(choice.rule, Recurrence):
        reason = _refused_recurrence(choice, choice.rule) or _refused_residual(choice)
    else:
        reason = _refused_runge_kutta(choice) or _refused_residual(choice)
    if reason is not None:
        return reason
    if choice.layerdrop:
        return "LayerDrop hides how deep a layer stands, which a depth scheme has to know: set layerdrop to 0"
    if choice.relative_values and not choice.max_relative_positions:
        return "relative positions on the values need a clip distance (max-relative-positions) above 0"
    return None


def _refused_runge_kutta(choice: DepthChoice) -> str | None:
    tableau = get_tableau(choice.scheme)
    reason = coefficients_refusal(choice.coefficients, tableau)
    if reason is not None:
        return reason
    if choice.share_coefficients and not choice.learned:
        return f"coefficients '{choice.coefficients}' are not learned, there is nothing to share"
    if choice.steps < 1:
        return f"the number of steps must be at least 1, not {choice.steps}"
    if choice.function == "layer-output" and tableau.order == 0:
        return f"scheme '{choice.scheme}' applies the layer itself; 'layer-output' would add y to it once more"
    if choice.function == "layer-output" and choice.steps > 1:
        return "the output of a layer is no rate of change: 'layer-output' goes with one step of size 1"
    if choice.function == "increment" and not choice.normalize_before:
        return "post-norm layers are not y + F(y): use pre-norm (normalize-before) or the function 'layer-output'"
    return None


def _refused_recurrence(choice: DepthChoice, recurrence: Recurrence) -> str | None:
    parts = ("coefficients", "share_coefficients", "function", "steps")
    reason = _refused_unless_plain(choice, parts, "the scheme is an equation in what blocks add, without stage weights")
    if reason is not None:
        return reason
    if not choice.normalize_before:
        return "post-norm layers are not y + F(y), and the scheme is made of F: use pre-norm (normalize-before)"
    if (recurrence.remembers or recurrence.each_sublayer) and choice.scope not in ("san+ffn", "san/ffn"):
        return "the scheme has to step all that layers add: its scope is 'san+ffn' or 'san/ffn'"
    if recurrence.remembers and choice.history != "none":
        return (
            "the scheme reads earlier layers itself, which a layer history would replace: pass "
            "--encoder-layer-history none for an encoder, --decoder-layer-history none for a decoder"
        )
    return None


def _refused_residual(choice: DepthChoice) -> str | None:
    """What all schemes but the depth-wise LSTM refuse."""
    if choice.stage_parameters == "separate" and choice.stages < 2:
        return f"separate stage parameters need at least two stages; scheme '{choice.scheme}' has one"
    if choice.lstm != LSTMChoice():
        return f"the parts of a depth-wise LSTM go with scheme '{LSTM}' alone"
    return None


def _refused_lstm(choice: DepthChoice) -> str | None:
    parts = ("coefficients", "share_coefficients", "function", "scope", "steps", "stage_parameters", "splitting")
    return _refused_unless_plain(choice, parts, f"scheme '{LSTM}' steps no F and has no feed-forward networks")


def _refused_unless_plain(choice: DepthChoice, parts: Sequence[str], why: str) -> str | None:
    """Refuses any other value of ``parts`` than the default."""
    plain = DepthChoice()
    for part in parts:
        only = getattr(plain, part)
        if getattr(choice, part) != only:
            return f"{why}: {part.replace('_', ' ')} '{only}' is all it takes"
    return None


def refused_stack(choices: Mapping[str, DepthChoice]) -> tuple[str, str] | None:
    """The first of several stacks whose parts do not go together, and why; None if there is none.

    The stacks share their options. What weighs stages, what concerns several stages, or the depth-wise LSTM, is meant
    for the stacks that have them, if any has.
    """
    known = [choice for choice in choices.values() if choice.scheme in SCHEMES]
    concerned = [any(has) for has in zip(*((c.weighs, c.stages > 1, c.is_lstm) for c in known), strict=True)]
    for stack, choice in choices.items():
        reason = refusal(choice.without_unused_options(*concerned) if choice.scheme in SCHEMES else choice)
        if reason is not None:
            return stack, reason
    return None


def swapped(trained: Mapping[str, str], wanted: DepthChoice) -> tuple[str, str | None] | None:
    """Compares what parameters were trained for with what they are to serve now.

    :param trained: :meth:`DepthChoice.checkpoint_settings` of the choice that they were trained for
    :returns: None if that is the same; otherwise a line that names both, and why it cannot be (None if it can)
    """
    changed = {name: value for name, value in wanted.checkpoint_settings().items() if trained.get(name, value) != value}
    if not changed:
        return None
    line = f"trained with {_listed({name: trained[name] for name in changed})}; this model has {_listed(changed)}"
    if _learned(trained["scheme"], trained["coefficients"]) or wanted.learned:
        return line, "learned coefficients belong to the scheme that they were trained with"
    if "scheme" in changed and LSTM in (trained["scheme"], wanted.scheme):
        return line, "a depth-wise LSTM and layers with residuals have different parameters"
    if "first_cell" in changed:
        return line, "the parameters of a depth-wise LSTM belong to its first cell"
    if "splitting" in changed:
        return line, "layers of another splitting have other sub-layers"
    if "separate" in (trained["stage_parameters"], wanted.stage_parameters):
        return line, "parameters of separate stages belong to the stages that they were trained for"
    return line, None


def _listed(trait: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in trait.items())


def build_scheme(
    choice: DepthChoice, layers: int, kinds: Mapping[str, SubLayerKind], dim: int, sizes: HiddenSizes | None = None
) -> DepthScheme:
    """The scheme of a stack.

    :param layers: how many layers the stack has
    :param kinds: kind of each sub-layer of a layer by name
    :param dim: width
    :param sizes: of the hidden computation of a depth-wise LSTM
    :raises ValueError: with the reason, if the parts do not go together
    """
    reason = refusal(choice)
    if reason is not None:
        raise ValueError(reason)
    blocks = sum(stepped for _, stepped in choice.grouping(kinds))  # in a layer
    scheme: DepthScheme
    if choice.is_lstm:
        scheme = DepthWiseLSTM(choice.lstm, layers, blocks, dim, sizes or HiddenSizes())
    elif isinstance(choice.rule, Recurrence):
        scheme = choice.rule.build(layers * blocks, dim)
    else:
        tableau = get_tableau(choice.scheme)
        sets = 1 if choice.share_coefficients or not choice.learned else layers * blocks
        coefficients = [build_coefficients(choice.coefficients, tableau, dim) for _ in range(sets)]
        scheme = RungeKutta(tableau, coefficients, choice.steps)
    if choice.history == "none":
        return scheme
    return LayerHistory(scheme, layers, dim, choice.history == "dlcl", choice.normalize_before)
