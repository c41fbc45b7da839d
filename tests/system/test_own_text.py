"""The commands of README and of docs/own_data.md that train a model run as they are written."""

import os
import subprocess
from pathlib import Path

import pytest
from command_folder import command_folder
from commands_for_tests import COMMANDS, ENVIRONMENT, PAIRS, SMALL, USER_DIR
from recorded_commands import BLOCK, ROOT

NAMES = ["ode-transformer", *(f"fairseq-{name}" for name in ("preprocess", "train", "generate", "eval-lm"))]


def run_in_bash(lines: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run shell commands in a folder, with those of this environment."""
    with command_folder(folder / "commands", NAMES) as commands:
        search_path = os.pathsep.join(map(str, (commands, COMMANDS, os.environ["PATH"])))
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=folder,
            env=ENVIRONMENT | {"PATH": search_path, "PYTHONPATH": str(USER_DIR.parent)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "title", "number", "splits", "shorter"),
    [
        (
            *("README.md", "Install and train", 1, ("train", "val", "test_2016_flickr")),
            {"--symbols 6000": "--symbols 200", "--max-epoch 10": f"--max-epoch 2 {' '.join(map(str, SMALL))}"},
        ),
        (
            *("docs/own_data.md", None, 0, ("train", "valid", "test")),
            {"my-experiment.yaml": f"my-experiment.yaml --workers 1 -- --max-update 5 {' '.join(map(str, SMALL))}"},
        ),
    ],
)
def test_the_lines_run_as_written(
    page: str, title: str | None, number: int, splits: tuple[str, ...], shorter: dict[str, str], tmp_path: Path
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = list(BLOCK.finditer(text.partition(f"\n## {title}\n")[2] if title else text))[number][2]
    for written, short in shorter.items():
        assert written in lines
        lines = lines.replace(written, short)
    for split in splits:
        for side, language in enumerate(("en", "de")):
            sentences = "".join(f"{pair[side]}\n" for pair in PAIRS)
            (tmp_path / f"{split}.{language}").write_text(sentences, encoding="utf-8")
    done = run_in_bash(lines, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "BLEU" in done.stdout.splitlines()[-1] or "| my-experiment | BLEU | chrF2 |" in done.stdout
