"""Corrections of fairseq, applied when our models register."""

from typing import Any

from fairseq import checkpoint_utils

from ode_transformer.checkpoints.parameters import upgrade_checkpoint

_upgrade_to_fairseqs_present = checkpoint_utils._upgrade_state_dict


def _upgrade_state_dict(state: dict[str, Any]) -> Any:
    """Upgrade what fairseq reads; a model sees its parameters alone, but the optimizer's state belongs to them."""
    return _upgrade_to_fairseqs_present(upgrade_checkpoint(state))


checkpoint_utils._upgrade_state_dict = _upgrade_state_dict
