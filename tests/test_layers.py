"""The lower layers of the package stand without the upper ones."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["ode_transformer", "ode_transformer.numerics", "ode_transformer.nn"])
def test_fairseq_is_not_loaded(package: str) -> None:
    code = f"import {package}, sys; print([m for m in sys.modules if m.split('.')[0] == 'fairseq'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numerics_does_not_know_nn() -> None:
    code = "import ode_transformer.numerics, sys; print([m for m in sys.modules if m.startswith('ode_transformer.nn')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
