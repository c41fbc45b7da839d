"""Settings that a checkpoint remembers: they change what parameters compute, but not their shapes."""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ode_transformer.nn.depth_choice import DepthChoice, learns_weights
from ode_transformer.nn.depth_wise_lstm import LSTM

logger = logging.getLogger(__name__)

_OLDER_WORDS = {"input": "merge"}  # in checkpoints of version 0.2


def checkpoint_settings(choice: DepthChoice) -> dict[str, str]:
    """Return the remembered options of ``choice`` by name, with one value for all that compute the same."""
    rule = choice.rule
    settings = {option.name: choice.value(option) for option in choice.options().values() if option.remembered}
    settings |= {"scheme": choice.scheme if rule is None else rule.name, "scope": choice.stepped_scope}
    if choice.lstm.merge != "residual":  # the others differ in the shapes of parameters
        settings["merge"] = "add"
    if choice.is_residual:
        settings["scope"] = "san+ffn"
        if choice.normalize_before:
            settings["function"] = "increment"
    return {name: str(value) for name, value in settings.items()}


def _obstacle(trained: Mapping[str, str], choice: DepthChoice, changed: Mapping[str, str]) -> str | None:
    """Return why parameters with the settings ``trained`` cannot serve a model; None if they can."""
    options = choice.options()
    if learns_weights(trained["scheme"], trained["coefficients"]) or choice.has_learned_weights:
        return "learned coefficients belong to the scheme that they were trained with"
    if "scheme" in changed and LSTM in (trained["scheme"], choice.scheme):
        return "a depth-wise LSTM and layers with residuals have different parameters"
    for name in changed:
        if name not in options or options[name].fixed:
            return f"parameters belong to the {name.replace('_', ' ')} that they were trained with"
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
        trained = {_OLDER_WORDS.get(name, name): value for name, value in trained.items()}
        for name, value in self.fixed.items():
            if (trained_value := trained.pop(name, value)) != value:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{self.stack}: trained with {flag} {trained_value}, which is not to be {value} now")
        trained = checkpoint_settings(type(self.choice)()) | trained  # what is missing had its default
        current = checkpoint_settings(self.choice)
        changed = {name: value for name, value in trained.items() if current.get(name) != value}
        if not changed:
            return
        now = {name: current.get(name, "no longer an option") for name in changed}
        change = f"{self.stack}: trained with {_join(changed)}; this model has {_join(now)}"
        obstacle = _obstacle(trained, self.choice, changed)
        if obstacle is None and not self.may_change:
            obstacle = "decode with --model-overrides or train on with --finetune-from-model to swap them"
        if obstacle is not None:
            raise ValueError(f"{change}: {obstacle}")
        logger.warning(change)
