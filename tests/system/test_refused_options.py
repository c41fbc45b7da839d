"""Options that make no model: an exit status, one clear last line, and nothing is written."""

from pathlib import Path

import pytest
from commands_for_tests import ENVIRONMENT, USER_DIR, Text, run, training

from ode_transformer.nn import depth_schemes

pytestmark = pytest.mark.slow


REFUSED = {
    "unknown scheme": (
        ("--encoder-ode-scheme", "no-such-scheme"),
        ("--encoder-ode-scheme", "no-such-scheme", *depth_schemes()),
    ),
    "probability of one": (("--word-dropout-prob", "1"), ("--word-dropout-prob", "[0, 1)")),
    "negative distance": (("--max-relative-positions", "-1"), ("--max-relative-positions", "-1", "whole number")),
    "gate of one stage": (
        ("--encoder-ode-scheme", "euler", "--ode-coefficients", "gate"),
        ("--encoder-ode-scheme euler", "'gate'", "two stages"),
    ),
    "history of what remembers": (
        ("--encoder-ode-scheme", "leapfrog", "--ode-coefficients", "tableau"),
        ("--encoder-ode-scheme leapfrog", "pass --encoder-layer-history none"),
    ),
    "post-norm": (("--post-norm",), ("post-norm", "layer-output")),
    "no step": (("--ode-steps", "0"), ("--ode-steps", "0", "whole number from 1 on")),
    "values without distance": (
        ("--relative-values", "--max-relative-positions", "0"),
        ("relative positions on the values", "above 0"),
    ),
    "parts of no LSTM": (("--dlstm-share", "none"), ("--encoder-ode-scheme", "depth-wise LSTM", "'dlstm' alone")),
    "bias that is no number": (("--dlstm-forget-bias", "nan"), ("--dlstm-forget-bias", "nan is not a number")),
    "unknown part": (("--dlstm-merge", "mul"), ("--dlstm-merge", "mul", "add", "concat")),
    "LayerDrop": (("--encoder-layerdrop", "0.1"), ("encoder", "LayerDrop", "0")),
    "quantisation noise": (("--quant-noise-pq", "0.1"), ("--quant-noise-pq", "not supported")),
}


def test_hydra_is_refused(text: Text, tmp_path: Path) -> None:
    words = ("task=translation", f"task.data={text.data}", "task.source_lang=en", "task.target_lang=de")
    words += (f"common.user_dir={USER_DIR}", "+model._name=ode_transformer_rk2_tiny", "common.cpu=true")
    words += ("criterion=cross_entropy", "optimizer=adam", "optimization.lr=[0.1]", "lr_scheduler=fixed")
    done = run("hydra-train", *words, "dataset.max_tokens=512", cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: fairseq-hydra-train cannot train ode_transformer_rk2_tiny")
    assert 'use fairseq-train --user-dir "$(ode-transformer user-dir)"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_training_is_refused(text: Text, tmp_path: Path, options: tuple[str, ...], said: tuple[str, ...]) -> None:
    save_dir = tmp_path / "run"
    done = run("train", *training(text, save_dir, "ode_transformer_rk2_tiny", 1, *options))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    last = done.stderr.rstrip().splitlines()[-1]
    assert all(word in last for word in said), last
    assert not list(save_dir.glob("**/*"))
