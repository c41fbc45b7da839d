"""The scripts of examples/ run as their headers say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, temporary: Path, code: str = "") -> str:
    """Run an example and then ``code`` in one process, and return what they print."""
    code = f"import runpy, sys; runpy.run_path('examples/{name}.py', run_name='__main__'); {code}"
    environment = os.environ | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def header(name: str) -> str:
    return (EXAMPLES / f"{name}.py").read_text().split('"""')[1]


def test_every_example_says_how_it_is_run() -> None:
    for script in EXAMPLES.glob("*.py"):
        assert f"\n    python examples/{script.name}\n" in header(script.stem)


def test_an_equation_of_your_own(tmp_path: Path) -> None:
    out = run_example("own_equation", tmp_path)
    for line in re.findall(r"^    (.*\d)$", header("own_equation"), re.M):
        assert line in out
    orders = {row.split()[0]: float(row.split()[-1]) for row in out.splitlines()[1:]}
    assert orders["heun"] == pytest.approx(2, abs=0.1)
    assert orders["rk4"] == pytest.approx(4, abs=0.1)


def test_an_encoder_without_fairseq(tmp_path: Path) -> None:
    out = run_example(
        "plain_pytorch", tmp_path, "assert not [name for name in sys.modules if name.startswith('fairseq')]"
    )
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", out)]
    assert losses[0] > 2
    assert losses[-1] < 0.1


@pytest.mark.slow
def test_a_scheme_of_your_own_trains_and_loads(tmp_path: Path) -> None:
    load = (
        "from fairseq.checkpoint_utils import load_model_ensemble; import glob;"
        f"models, _ = load_model_ensemble(glob.glob('{tmp_path}/*/checkpoints/checkpoint_last.pt'));"
        "print('loaded with', models[0].encoder.choice.scheme)"
    )
    out = run_example("new_scheme", tmp_path, load)
    losses = [float(loss) for loss in re.findall(r"train:epoch \d+ \| loss (\S+)", out)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 5
    assert "loaded with heun3" in out
