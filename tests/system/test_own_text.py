"""The lines of README and docs that train a model step by step run as they are written."""

import os
import subprocess
from pathlib import Path

import pytest
from command_folder import command_folder
from commands_for_tests import COMMANDS, ENVIRONMENT, PAIRS, SMALL, USER_DIR
from ptb_stand_in import sentences
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
def test_the_lines_run_as_written(tmp_path: Path) -> None:
    pages = (("README.md", "Your own text"), ("docs/own_data.md", "Without a recipe"))
    sections = [(ROOT / page).read_text(encoding="utf-8").partition(f"\n## {title}\n")[2] for page, title in pages]
    blocks = [next(BLOCK.finditer(section))[2] for section in sections]
    assert [block.count("\n") for block in blocks] == [3, 8]
    lines = "".join(blocks)
    small = " ".join(map(str, SMALL))
    for written, shorter in (
        ("my-experiment.yaml", f"my-experiment.yaml --workers 1 -- --max-update 5 {small}"),
        ("ode_transformer_rk2_tiny/model", "*/model"),  # shorter flags are part of the folder's name
        ("--symbols 8000", "--symbols 200"),
        ("--max-epoch 40", f"--max-epoch 5 {small}"),
    ):
        assert written in lines
        lines = lines.replace(written, shorter)
    for split in ("train", "valid", "test"):
        for side, language in enumerate(("en", "de")):
            # Few to decode: so early, a model does not find the end of a sentence.
            text = "".join(f"{pair[side]}\n" for pair in PAIRS[: 6 if split == "test" else None])
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    done = run_in_bash(lines, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "test.output").read_text(encoding="utf-8").count("\n") == 6
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()[-2:]] == ["BLEU", "chrF2"]
    assert "| my-experiment | BLEU | chrF2 |" in done.stdout


@pytest.mark.slow
def test_a_language_model_by_hand(tmp_path: Path) -> None:
    blocks = BLOCK.finditer((ROOT / "docs" / "penn_treebank.md").read_text(encoding="utf-8"))
    first, *rest = "".join(match[2] for match in blocks).splitlines(keepends=True)
    assert first == "ode-transformer prepare ptb && cd experiments/ptb\n"
    lines = "".join(rest)
    small = "--decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2 --cpu --max-update 3"
    for written, shorter in (("--max-update 20000", small), ("--tokens-per-sample 512", "--tokens-per-sample 32")):
        assert written in lines
        lines = lines.replace(written, shorter)
    (tmp_path / "corpus").mkdir()
    for split in ("train", "valid", "test"):
        text = "".join(f"{line.strip()} .\n" for line in sentences(split))
        (tmp_path / "corpus" / f"{split}.txt").write_text(text, encoding="utf-8")
    done = run_in_bash(lines, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "perplexity" in done.stdout
    assert done.stdout.count("\nD-0\t") == 2  # found by search, and drawn
