"""Files of the linear probe that another program wrote, or nobody."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ode_transformer.analysis.linear_probe.probe_files import load_fit, load_sums
from ode_transformer.checkpoints.reading import save_checkpoint
from ode_transformer.support.errors import UserError

CPU = torch.device("cpu")
WEIGHT = {"weight": torch.zeros(2, 2)}


@pytest.mark.parametrize("state", [{"model": WEIGHT}, {"model": WEIGHT, "stranger": 1}])
def test_a_fit_that_is_none(state: dict[str, Any], tmp_path: Path) -> None:
    save_checkpoint(state, tmp_path / "fit.pt")
    with pytest.raises(UserError, match="fit.pt: not a file of the linear probe's fit"):
        load_fit(tmp_path / "fit.pt", CPU)


@pytest.mark.parametrize(
    "state", [{}, {"places": 3}, {"places": [("decoder",)]}, {"places": [("decoder", 1)], "position": 1, "request": ""}]
)
def test_sums_that_are_none(state: dict[str, Any], tmp_path: Path) -> None:
    save_checkpoint({"model": WEIGHT, **state}, tmp_path / "sums.pt")
    with pytest.raises(UserError, match="sums.pt: not a file of the linear probe's sums"):
        load_sums(tmp_path / "sums.pt", CPU)
