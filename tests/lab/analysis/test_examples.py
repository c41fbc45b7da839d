"""Sentences side by side: the chosen ones, with what differs from the reference."""

from pathlib import Path

import pytest

from ode_transformer.cli.command import main

SOURCES = ["He go to school .", "I likes it .", "All is well ."]
REFERENCES = ["He goes to the school .", "I like it .", "All is well ."]
BASELINE = ["He go to school .", "I like it .", "All is well ."]
RK4 = ["He goes to the school .", "I likes it | *much* .", "All is well ."]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Two texts, and the first system's log of fairseq-generate, out of order."""
    texts = {"source": SOURCES, "references": REFERENCES, "baseline": BASELINE, "rk4": RK4}
    paths = {name: tmp_path / name for name in (*texts, "log")}
    for name, lines in texts.items():
        paths[name].write_text("".join(f"{line}\n" for line in lines))
    log = [
        f"S-{n}\t{SOURCES[n]}\nT-{n}\t{REFERENCES[n]}\nH-{n}\t-1\tx x\nD-{n}\t-1\t{BASELINE[n]}\n" for n in (2, 0, 1)
    ]
    paths["log"].write_text("2026 | INFO | fairseq_cli.generate | loading\n" + "".join(log) + "Generate test: BLEU\n")
    paths["pieces"] = paths["log"].with_name("pieces")
    paths["pieces"].write_text("".join(f"{line.replace('go', 'g@@ o').replace('i', 'i@@ ')}\n" for line in BASELINE))
    return paths


TABLE = """Beside the reference: **added**, ~~missing~~. In brackets: per of the sentence.

### Line 2

|  |  |
|---|---|
| source | I likes it . |
| reference | I like it . |
| baseline (0.0) | I like it . |
| rk4 (75.0) | I ~~like~~ **likes** it **\\| \\*much\\*** . |
"""


@pytest.mark.parametrize("baseline", ["log", "baseline", "pieces"])
@pytest.mark.parametrize("chosen", [("--lines", "2"), ("--most-different", "1")])
def test_logs_and_texts_of_systems(files: dict[str, Path], capsys, baseline: str, chosen: tuple[str, ...]) -> None:
    sides = [] if baseline == "log" else ["--source", str(files["source"]), "--references", str(files["references"])]
    systems = [f"baseline={files[baseline]}", f"rk4={files['rk4']}"]
    output = files["log"].with_name("examples.md")
    options = ["--metric", "per", "--output", str(output)]
    assert main(["analyse", "examples", *systems, *sides, *chosen, *options]) == 0
    assert capsys.readouterr().out == output.read_text() == TABLE


def test_a_text_cannot_change_the_terminal(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files["rk4"].write_text("\x1b[2J\x9b2J \u202eworse\n" * 3)
    words = ["analyse", "examples", f"rk4={files['rk4']}", "--references", files["references"], "--lines", "2"]
    assert main(list(map(str, words))) == 0
    out = capsys.readouterr().out
    assert "�\\[2J�2J �worse" in out
    assert all(line.isprintable() for line in out.splitlines())
