"""Schemes and coefficients of all kinds train and decode, and a checkpoint says for which scheme it was trained."""

from pathlib import Path

import pytest
import torch
from commands_for_tests import USER_DIR, Text, lines_of, run, succeed, train, training
from fairseq.checkpoint_utils import load_ema_from_checkpoint

from ode_transformer.checkpoints.reading import load_checkpoint

pytestmark = pytest.mark.slow

# Some of each kind of scheme, coefficients and function; ``learned`` in conftest.py has the gate.
ROWS = {
    "recurrences": (
        *("euler", "--encoder-ode-scheme", "iiet", "--encoder-layer-history", "none"),
        *("--decoder-ode-scheme", "multistep", "--decoder-layer-history", "none"),
    ),
    "macaron": (
        *("macaron", "--encoder-ode-scheme", "rk4", "--encoder-layer-history", "dlcl"),
        *("--ode-stage-parameters", "separate", "--ode-steps", 2, "--max-relative-positions", 3, "--relative-values"),
    ),
    "dlstm-other": ("dlstm", "--dlstm-hidden", "linear", "--dlstm-merge", "concat", "--dlstm-share", "none"),
}


def generate(text: Text, path: Path, *options: object):
    common = ("--user-dir", USER_DIR, "--cpu", "--batch-size", 8, "--required-batch-size-multiple", 1, "--beam", 2)
    return run("generate", text.data, *common, "--path", path, "--max-len-b", 10, *options)


@pytest.mark.parametrize("row", ROWS)
def test_each_row_trains_and_decodes(row: str, text: Text, tmp_path: Path) -> None:
    method, *flags = ROWS[row]
    arch = f"{method}_tiny" if method in ("macaron", "dlstm") else f"ode_transformer_{method}_tiny"
    checkpoint = train(text, tmp_path, arch, 3, *flags)
    done = generate(text, checkpoint)
    assert done.returncode == 0, done.stderr
    assert len(lines_of(done.stdout, "H")) == 8


def test_training_does_not_go_on_under_another_scheme_but_fine_tuning_may(text: Text, tmp_path: Path) -> None:
    """Both schemes are named. What was trained stays as it is."""
    checkpoint = train(text, tmp_path / "rk4", "ode_transformer_rk4_tiny", 1)
    before, said = checkpoint.read_bytes(), "trained with scheme rk4; this model has scheme euler"
    words = training(text, tmp_path / "other", "ode_transformer_euler_tiny", 1)
    done = run("train", *words, "--restore-file", checkpoint)
    assert done.returncode != 0
    assert said in done.stderr
    assert not list((tmp_path / "other").glob("*.pt"))
    assert said in succeed("train", *words, "--finetune-from-model", checkpoint, stderr=-2)
    assert checkpoint.read_bytes() == before


def test_an_exponential_moving_average_of_the_parameters_trains_and_decodes(text: Text, tmp_path: Path) -> None:
    """It goes on when the training does."""
    ema = ("--store-ema", "--ema-decay", 0.9, "--save-interval-updates", 1)
    train(text, tmp_path, "ode_transformer_rk2_tiny", 2, *ema)
    checkpoint = train(text, tmp_path, "ode_transformer_rk2_tiny", 3, *ema)
    before, after = (load_checkpoint(path) for path in (*tmp_path.glob("checkpoint_*_2.pt"), checkpoint))
    for name, old in before["extra_state"]["ema"].items():
        new = after["model"][name]
        decay = 0.9 if new.is_floating_point() else 0.0
        expected = (decay * old + (1 - decay) * new).to(new.dtype)
        torch.testing.assert_close(after["extra_state"]["ema"][name], expected)
    average = tmp_path / "average.pt"
    torch.save(load_ema_from_checkpoint(str(checkpoint)), average)
    done = generate(text, average)
    assert done.returncode == 0, done.stderr
    assert len(lines_of(done.stdout, "H")) == 8
