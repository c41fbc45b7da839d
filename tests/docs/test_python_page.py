"""The programs that docs/python.md and the README show run where fairseq cannot be imported."""

import re
import subprocess
import sys
from pathlib import Path

from recorded_commands import ROOT

WITHOUT_FAIRSEQ = 'import sys\nsys.modules["fairseq"] = None  # an import of it raises ImportError\n'


def program(page: str) -> str:
    """Return the blocks of Python of a page, which go on from each other."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL))


def run(text: str) -> list[str]:
    """Run a program without fairseq and return its lines."""
    words = [sys.executable, "-c", WITHOUT_FAIRSEQ + text]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_program_of_the_page(untrained: Path) -> None:
    shown = program("docs/python.md")
    folder = "quickstart/en-de/ode_transformer_normalized_tiny/model"
    assert folder in shown
    shown = shown.replace(folder, str(untrained.parent))
    *lines, sizes = run(f"{shown}\nprint(*scores.shape[:2], len(source), len(target))\n")
    one, words, read, written = map(int, sizes.split())
    assert (one, words) == (1, written)
    assert "torch.Size([2, 4, 10000]) torch.Size([2, 4, 10000])" in lines
    assert f"attention over the source ('target', 'source') torch.Size([{words}, {read}])" in lines
    assert f"decoder layer 1 cross-attention torch.Size([2, {words}, {read}])" in lines
    assert any(line.startswith("encoder layer 2 (0.") for line in lines)


def test_the_program_of_the_readme() -> None:
    (sizes,) = run(f"{program('README.md')}\nprint(*scores.shape, len(words))\n")
    assert sizes == "2 3 10000 2"
