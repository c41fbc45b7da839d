"""The scripts of examples/ run as their headers say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands_for_tests import COMMANDS
from plain_models import PAIRS
from programs_here import run_here, start_programs_here

from ode_transformer.numerics import tableau

EXAMPLES = Path(__file__).parents[2] / "examples"


# In one process, which fairseq must not enter.
WITHOUT_FAIRSEQ = """
import runpy, sys
for name in ("own_equation", "plain_pytorch"):
    runpy.run_path(f"examples/{name}.py", run_name="__main__")
    assert not [module for module in sys.modules if module.startswith("fairseq")], name
"""


def test_numerics_and_layers_without_fairseq(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_FAIRSEQ]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    table, _, training = done.stdout.partition("step ")
    shown = (EXAMPLES / "own_equation.py").read_text().split('"""')[1]
    for line in re.findall(r"^    (.*\d)$", shown, re.M):
        assert line in table
    orders = {row.split()[0]: float(row.split()[-1]) for row in table.splitlines()[1:]}
    assert orders["heun"] == pytest.approx(2, abs=0.1)
    assert orders["rk4"] == pytest.approx(4, abs=0.1)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", training)]
    assert losses[0] > 2
    assert losses[-1] < 0.1


SIZES = ("embed-dim=16", "ffn-embed-dim=16", "layers=2")
SMALL = [f"--{stack}-{size}" for stack in ("encoder", "decoder") for size in SIZES]


@pytest.mark.slow
def test_a_scheme_of_your_own_is_trained_measured_and_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split, pairs in (("train", PAIRS), ("valid", PAIRS[:4])):
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))

    monkeypatch.chdir(tmp_path)

    def run(words: str, status: int = 0, stdin: str = "") -> str:
        done = run_here(["ode-transformer", *words.split()], stdin, merge=True)
        assert done.returncode == status, done.stdout
        return done.stdout

    own = f"--user-dir {EXAMPLES / 'new_scheme'}"
    run("new mine --train train.en train.de --valid valid.en valid.de")
    flags = f"--gpus 0 {own} -- --encoder-ode-scheme heun3 --max-update 2 {' '.join(SMALL)}"
    with pytest.MonkeyPatch.context() as until_the_end:  # of the block the scheme is registered
        until_the_end.setattr(tableau, "_BY_NAME", dict(tableau._BY_NAME))
        until_the_end.setattr(tableau, "_NAMES", set(tableau._NAMES))
        start_programs_here(until_the_end)
        printed = run(f"reproduce mine.yaml --workers 1 {flags}")
        assert f"fairseq-train experiments/mine/data-bin {own}" in printed
        assert "BLEU" in printed
        (model,) = tmp_path.glob("experiments/mine/*/model/model.pt")
        coefficients = run(f"analyse coefficients {model} --data experiments/mine/data-bin {own}")
        assert "0.250 ± 0.000  0.000 ± 0.000  0.750" in coefficients
        assert run(f"translate --path {model} --max-len-b 3 {own}", stdin="The dog sleeps.\n").count("\n") == 1
        exported = run(f"export --to ctranslate2 --path {model} --output ct {own}", 2)
        assert "--encoder-ode-scheme heun3, only euler" in exported
    del sys.modules["new_scheme"]
    assert "unknown scheme 'heun3'" in run(f"translate --path {model}", 2, stdin="The dog sleeps.\n")

    # An installed package needs no flag.
    installed = tmp_path / "installed"
    record = installed / "new_scheme-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: new_scheme\nVersion: 1\n")
    (record / "entry_points.txt").write_text("[ode_transformer.plugins]\nschemes = new_scheme\n")
    (installed / "new_scheme").symlink_to(EXAMPLES / "new_scheme")
    code = "import argparse; from ode_transformer.cli.command import check_schemes as check; "
    code += "check(argparse.Namespace(scheme='heun3'))"
    environment = os.environ | {"PYTHONPATH": f"{installed}:{EXAMPLES.parent}"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    words = [COMMANDS / "ode-transformer", *f"translate --path {model} --max-len-b 3".split()]
    done = subprocess.run(words, input="A dog.\n", capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.count("\n") == 1, done.stderr
