"""The commands of README that train a model run as they are written, and those of other pages on what it made."""

import gzip
import os
import subprocess
from pathlib import Path

import pytest
from commands_for_tests import COMMANDS, ENVIRONMENT, SMALL
from plain_models import PAIRS
from recorded_commands import BLOCK, ROOT

SHORTER = {"--symbols 6000": "--symbols 200", "--max-epoch 2": f"--max-epoch 2 {' '.join(map(str, SMALL))}"}
SHORTER |= {words: f"{words} --max-len-b 20" for words in ("--beam 5", "--input test_2016_flickr.en")}
LINES = 3  # of the validation and of the test
REFUSED = "! ode-transformer translate --path checkpoints/checkpoint_best.pt 2> refused\n"  # it needs DATA


@pytest.mark.slow
def test_the_lines_run_as_written(tmp_path: Path) -> None:
    blocks = [
        blocks_of("README.md")[1] + REFUSED,
        *[block for block in blocks_of("docs/usage.md") if " data/model.pt" in block],
        blocks_of("docs/export.md")[1],
        *[block for block in blocks_of("docs/first_steps.md") if "rk2/checkpoint_best.pt" in block],
    ]
    assert len(blocks) == 7
    lines = "\n".join(blocks)
    for written, short in SHORTER.items():
        assert written in lines
        lines = lines.replace(written, short)
    for split in ("train", "val", "test_2016_flickr"):
        for side, language in enumerate(("en", "de")):
            sentences = "".join(f"{pair[side]}\n" for pair in (PAIRS if split == "train" else PAIRS[:LINES]))
            with gzip.open(tmp_path / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(sentences)
    environment = ENVIRONMENT | {"PATH": f"{COMMANDS}:{os.environ['PATH']}"}
    words = ["bash", "-euo", "pipefail", "-c", lines]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    refused = (tmp_path / "refused").read_text()
    hint = "a dictionary of checkpoints/checkpoint_best.pt: give its folder as DATA or --data (the training read data)"
    assert f"checkpoints/dict.en.txt: missing, {hint}" in refused
    assert done.stdout.count("BLEU") == 4
    assert "encoder layer 1:" in done.stdout  # the stage weights of RK2
    assert len((tmp_path / "test.de").read_text().splitlines()) == LINES


def blocks_of(page: str) -> list[str]:
    return [match[2] for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")) if match[1] == "bash"]
