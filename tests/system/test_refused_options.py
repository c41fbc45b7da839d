"""Options that make no model: an exit status, one clear last line, and nothing is written."""

from pathlib import Path

import pytest
from commands_for_tests import ENVIRONMENT, USER_DIR, Text, run

pytestmark = pytest.mark.slow


# One of each place that refuses; tests/models/test_options.py has the others.


def test_hydra_is_refused(text: Text, tmp_path: Path) -> None:
    words = ("task=translation", f"task.data={text.data}", "task.source_lang=en", "task.target_lang=de")
    words += (f"common.user_dir={USER_DIR}", "+model._name=ode_transformer_rk2_tiny", "common.cpu=true")
    words += ("criterion=cross_entropy", "optimizer=adam", "optimization.lr=[0.1]", "lr_scheduler=fixed")
    done = run("hydra-train", *words, "dataset.max_tokens=512", cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: fairseq-hydra-train cannot train ode_transformer_rk2_tiny")
    assert 'use fairseq-train --user-dir "$(ode-transformer user-dir)"' in done.stderr
    assert "Traceback" not in done.stderr
