"""Options that make no model: an exit status, one clear last line, and nothing is written."""

from pathlib import Path

import pytest
from commands_for_tests import USER_DIR, Text, run, training

from ode_transformer.numerics import scheme_names

pytestmark = pytest.mark.slow


REFUSED = {
    "unknown scheme": (("--encoder-ode-scheme", "rk5"), ("--encoder-ode-scheme", "rk5", *scheme_names())),
    "probability of one": (("--word-dropout-prob", "1"), ("--word-dropout-prob", "[0, 1)")),
    "negative distance": (("--max-relative-positions", "-1"), ("--max-relative-positions", "-1", "whole number")),
    "gate of one stage": (
        ("--encoder-ode-scheme", "euler", "--ode-coefficients", "gate"),
        ("--ode-coefficients gate", "two stages", "euler"),
    ),
    "LayerDrop": (("--encoder-layerdrop", "0.1"), ("encoder", "LayerDrop", "0")),
    "quantisation noise": (("--quant-noise-pq", "0.1"), ("--quant-noise-pq", "not supported")),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_training_is_refused(text: Text, tmp_path: Path, options: tuple[str, ...], said: tuple[str, ...]) -> None:
    save_dir = tmp_path / "run"
    done = run("train", *training(text, save_dir, "ode_transformer_rk2_tiny", 1, *options))
    assert done.returncode != 0
    last = done.stderr.rstrip().splitlines()[-1]
    assert all(word in last for word in said), last
    assert not list(save_dir.glob("**/*"))


def test_post_norm_is_refused(text: Text, trained: Path) -> None:
    # fairseq-train has no option that switches pre-norm off, but whoever decodes can override what was stored.
    path = ("--path", trained / "checkpoint_last.pt", "--model-overrides", "{'decoder_normalize_before': False}")
    done = run("generate", text.data, "--user-dir", USER_DIR, "--cpu", *path)
    assert done.returncode != 0
    assert done.stderr.rstrip().splitlines()[-1].startswith("ValueError: --decoder-ode-scheme euler: post-norm")
