"""A study that processes share, and what its table is made of."""

from pathlib import Path

import pytest

from ode_transformer.lab.studies import find_study
from ode_transformer.lab.studies.run_study import claim_results
from ode_transformer.support.errors import UserError


def test_a_study_of_the_same_name_replaces_no_results(tmp_path: Path) -> None:
    own, folder = tmp_path / "mine" / "coefficients.yaml", tmp_path / "results" / "coefficients-g2p"
    claim_results(folder, find_study("coefficients"))
    claim_results(folder, find_study("coefficients"))
    with pytest.raises(UserError, match="has the results of another study, coefficients; choose another --output"):
        claim_results(folder, own)
