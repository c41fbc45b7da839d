"""The scripts of examples/ run as their headers say."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands_for_tests import PAIRS, TIMEOUT
from forked_commands import carry_out, forking_context, run_forked
from served_models import translations

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
def test_a_scheme_of_your_own_goes_through_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, pairs in (("train", PAIRS), ("valid", PAIRS[:4])):
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))

    monkeypatch.chdir(tmp_path)

    def run(words: str, status: int = 0, stdin: str = "") -> str:
        done = run_forked(["ode-transformer", *words.split()], stdin, merge=True, timeout=TIMEOUT)
        assert done.returncode == status, done.stdout
        return done.stdout

    own = f"--user-dir {EXAMPLES / 'new_scheme'}"
    run("new mine --train train.en train.de --valid valid.en valid.de")
    flags = f"--gpus 0 {own} -- --encoder-ode-scheme heun3 --max-update 2 {' '.join(SMALL)}"
    assert f"fairseq-train experiments/mine/data-bin {own}" in run(f"reproduce mine.yaml --workers 1 {flags}")
    assert "BLEU" in run(f"evaluate mine.yaml {flags}")
    (model,) = tmp_path.glob("experiments/mine/*/model/model.pt")
    assert "0.250 ± 0.000  0.000 ± 0.000  0.750" in run(
        f"analyse coefficients {model} --data experiments/mine/data-bin {own}"
    )
    assert run(f"translate --path {model} --max-len-b 3 {own}", stdin="The dog sleeps.\n").count("\n") == 1
    assert "option encoder_ode_scheme is 'heun3'" in run(f"translate --path {model}", 2, stdin="The dog sleeps.\n")
    assert "--encoder-ode-scheme heun3, only euler" in run(
        f"export --to ctranslate2 --path {model} --output ct {own}", 2
    )
    assert "huggingface" in run(f"export --to huggingface --path {model} --output hf {own}")
    words = ["ode-transformer", "serve", str(model), "--port", "0", *own.split()]
    log = tmp_path / "serve.log"
    log.touch()
    server = forking_context().Process(target=carry_out, args=(words, str(log)))
    server.start()
    while (port := re.search(r":(\d+)/\s", log.read_text())) is None:
        assert server.is_alive(), log.read_text()
        time.sleep(0.05)
    assert len(translations(int(port[1]), ["The dog sleeps."])) == 1
    os.kill(server.pid, signal.SIGINT)
    server.join()

    # An installed package needs no flag.
    installed = tmp_path / "installed"
    record = installed / "new_scheme-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: new_scheme\nVersion: 1\n")
    (record / "entry_points.txt").write_text("[ode_transformer.plugins]\nschemes = new_scheme\n")
    (installed / "new_scheme").symlink_to(EXAMPLES / "new_scheme")
    code = "from ode_transformer.support import registered_names; registered_names.check_scheme('heun3', '--scheme')"
    environment = os.environ | {"PYTHONPATH": f"{installed}:{EXAMPLES.parent}"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    monkeypatch.syspath_prepend(installed)
    assert run(f"translate --path {model} --max-len-b 3", stdin="The dog sleeps.\n").count("\n") == 1
