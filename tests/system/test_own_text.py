"""The lines of README that train a model on a user's own text run as they are written."""

import os
import subprocess
from pathlib import Path

import pytest
from commands_for_tests import COMMANDS, ENVIRONMENT, PAIRS, USER_DIR
from recorded_commands import BLOCK, ROOT


@pytest.mark.slow
def test_the_lines_run_as_written(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Your own text\n")[2]
    blocks = [match[2] for match in BLOCK.finditer(section)][:2]
    assert [block.count("\n") for block in blocks] == [2, 8]
    lines = "".join(blocks)
    for written, shorter in (("--symbols 8000", "--symbols 200"), ("--max-epoch 40", "--max-epoch 5")):
        assert written in lines
        lines = lines.replace(written, shorter)
    for split in ("train", "valid", "test"):
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in PAIRS)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    search_path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PATH": search_path, "PYTHONPATH": str(USER_DIR.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "test.output").read_text(encoding="utf-8").count("\n") == len(PAIRS)
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()[-2:]] == ["BLEU", "chrF2"]
    assert "| my-experiment | BLEU | chrF2 |" in done.stdout
