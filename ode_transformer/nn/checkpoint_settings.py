"""Settings that a checkpoint remembers: they change what parameters compute, but not their shapes."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ode_transformer.nn.depth_choice import DepthChoice, learns_weights
from ode_transformer.nn.depth_wise_lstm import LSTM
from ode_transformer.numerics import Recurrence

logger = logging.getLogger(__name__)


# Settings that are written only if they have another value, because older checkpoints do not have them.
_UNWRITTEN_OF_STEPS = {
    "gate_sum": "one",
    "step_size": "1.0",
    "middle_layers": "0",
    "normalize_step": "False",
    "value_residual": "none",
}
UNWRITTEN = _UNWRITTEN_OF_STEPS | {"input": "attention"}

# Settings of a depth-wise LSTM that its parameters belong to.
LSTM_SETTINGS = ("first_cell", "input")


def checkpoint_settings(choice: DepthChoice) -> dict[str, str]:
    """Return the settings of ``choice`` that a checkpoint remembers.

    Scopes compute the same for the residual layer, one Euler step; in pre-norm, so do functions.
    """
    rule = choice.rule
    plain = not isinstance(rule, Recurrence) and not choice.normalize_step and not choice.has_learned_weights
    residual = plain and choice.stages == choice.steps == choice.step_size == 1
    settings = {
        "scheme": choice.scheme if rule is None else rule.name,
        "coefficients": choice.coefficients,
        "function": "increment" if residual and choice.normalize_before else choice.function,
        "scope": "san+ffn" if residual else choice.stepped_scope,
        "steps": str(choice.steps),
        "stage_parameters": choice.stage_parameters,
        "splitting": choice.splitting,
    }
    further = {name: str(getattr(choice, name)) for name in _UNWRITTEN_OF_STEPS}
    if choice.is_lstm:
        settings["first_cell"] = choice.lstm.first_cell
        residual_input = choice.lstm.merge == "residual"
        further["input"] = "residual" if residual_input else "attention"
    return settings | {name: value for name, value in further.items() if value != UNWRITTEN[name]}


class SettingsChange(NamedTuple):
    """Difference between the settings of a checkpoint and those of a model.

    :param description: names both in one line
    :param obstacle: why the parameters cannot serve the model; None if they can
    """

    description: str
    obstacle: str | None


def settings_change(trained: Mapping[str, str], choice: DepthChoice) -> SettingsChange | None:
    """Compare the settings that parameters were trained with and those of the model that loads them.

    :param trained: :func:`checkpoint_settings` of the choice with which the parameters were trained
    :param choice: choice of the model
    :returns: None if nothing differs
    """
    trained, current = UNWRITTEN | dict(trained), UNWRITTEN | checkpoint_settings(choice)
    changed = {name: value for name, value in current.items() if trained.get(name, value) != value}
    if not changed:
        return None
    trained_values = {name: trained[name] for name in changed}
    return SettingsChange(
        f"trained with {_join(trained_values)}; this model has {_join(changed)}", _obstacle(trained, choice, changed)
    )


def _obstacle(trained: Mapping[str, str], choice: DepthChoice, changed: Mapping[str, str]) -> str | None:
    if "learned" in (trained["value_residual"], choice.value_residual) and "value_residual" in changed:
        return "learned weights of a value residual belong to the model that they were trained with"
    if learns_weights(trained["scheme"], trained["coefficients"]) or choice.has_learned_weights:
        return "learned coefficients belong to the scheme that they were trained with"
    if "scheme" in changed and LSTM in (trained["scheme"], choice.scheme):
        return "a depth-wise LSTM and layers with residuals have different parameters"
    for name in LSTM_SETTINGS:
        if name in changed:
            return f"the parameters of a depth-wise LSTM belong to its {name.replace('_', ' ')}"
    if "splitting" in changed:
        return "layers of another splitting have other sub-layers"
    if "separate" in (trained["stage_parameters"], choice.stage_parameters):
        return "parameters of separate stages belong to the stages that they were trained for"
    return None


def _join(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())


class CheckpointSettings(nn.Module):
    """Writes the settings of a stack into checkpoints, and compares them when one is loaded.

    A user who overrides the options of a checkpoint, or fine-tunes it, may want another scheme. Training that is only
    resumed must not change it unnoticed.

    :param may_change: allow a checkpoint with other settings, where its parameters make sense
    :param fixed: further options that the parameters depend on
    """

    def __init__(self, stack: str, choice: DepthChoice, may_change: bool, fixed: Mapping[str, str]) -> None:
        super().__init__()
        self.stack, self.choice, self.may_change, self.fixed = stack, choice, may_change, fixed

    def get_extra_state(self) -> Tensor:
        """Return the settings as UTF-8 bytes in a tensor, because checkpoints hold only tensors."""
        settings = checkpoint_settings(self.choice) | dict(self.fixed)
        return torch.tensor(list(" ".join(f"{name}={value}" for name, value in settings.items()).encode()))

    def set_extra_state(self, state: Tensor) -> None:
        """Compare the settings of a checkpoint with those of the stack.

        :raises ValueError: if the parameters cannot, or must not, serve this stack
        """
        line = bytes(int(number) for number in state.tolist()).decode()
        trained = dict(entry.split("=", 1) for entry in line.split())
        known = {*UNWRITTEN, *LSTM_SETTINGS, *checkpoint_settings(self.choice), *self.fixed}
        if gone := {name: value for name, value in trained.items() if name not in known}:
            raise ValueError(f"{self.stack}: trained with {_join(gone)}, an option that this version does not have")
        change = settings_change(trained, self.choice)
        for name, value in self.fixed.items():
            if trained.get(name, value) != value:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{self.stack}: trained with {flag} {trained[name]}, which is not to be {value} now")
        if change is None:
            return
        obstacle = change.obstacle
        if obstacle is None and not self.may_change:
            obstacle = "decode with --model-overrides or train on with --finetune-from-model to swap them"
        if obstacle is not None:
            raise ValueError(f"{self.stack}: {change.description}: {obstacle}")
        logger.warning(f"{self.stack}: {change.description}")
