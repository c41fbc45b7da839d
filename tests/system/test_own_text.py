"""The commands of README that train a model run as they are written."""

import gzip
import os
import subprocess
from pathlib import Path

import pytest
from commands_for_tests import COMMANDS, ENVIRONMENT, PAIRS, SMALL, USER_DIR
from recorded_commands import BLOCK, ROOT

SHORTER = {"--symbols 6000": "--symbols 200", "--max-epoch 3": f"--max-epoch 2 {' '.join(map(str, SMALL))}"}


@pytest.mark.slow
def test_the_lines_run_as_written(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install and train\n")[2]
    lines = list(BLOCK.finditer(text))[1][2]
    for written, short in SHORTER.items():
        assert written in lines
        lines = lines.replace(written, short)
    for split in ("train", "val", "test_2016_flickr"):
        for side, language in enumerate(("en", "de")):
            sentences = "".join(f"{pair[side]}\n" for pair in PAIRS)
            with gzip.open(tmp_path / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(sentences)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PATH": f"{COMMANDS}:{os.environ['PATH']}", "PYTHONPATH": str(USER_DIR.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "BLEU" in done.stdout.splitlines()[-1]
