"""The commands in a page of the documentation, as bash reads them."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:ode-transformer|fairseq-[a-z-]+|bash|python|pytest) [^`]*)`")
# bash calls this function in place of each program, because it finds none.
RECORD = """set -euo pipefail
cd() { :; }
command_not_found_handle() {
    local arguments
    printf -v arguments '%s\\001' "$@"
    printf '%s\\n' "$arguments" >>"$RECORDED" # in one piece: the programs of a pipe write at the same time
    # Read the pipe to its end: a writer whose reader is gone would be killed by SIGPIPE, now and then.
    if [[ -p /dev/stdin ]]; then while read -r _; do :; done; fi
}
"""


@dataclass(frozen=True)
class Block:
    """Lines of shell in a page.

    :param name: page and line, for messages
    :param inline: the command stands within a sentence, where it may be incomplete
    """

    name: str
    text: str
    inline: bool


def shell_blocks(page: Path) -> list[Block]:
    """Return what a page shows as shell: blocks of bash, lines of other blocks after ``$``, and code in sentences."""
    text = page.read_text(encoding="utf-8")
    blocks = []

    def add(start: int, commands: str, inline: bool) -> None:
        line = text.count("\n", 0, start) + 1
        commands = commands.replace("../../", "").replace(".venv/bin/", "")
        blocks.append(Block(f"{page.relative_to(ROOT)}:{line}", commands, inline))

    for match in BLOCK.finditer(text):
        language, body = match.groups()
        prompts = re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.MULTILINE)
        if language == "bash" or prompts:
            add(match.start(), body if language == "bash" else "\n".join(prompts), inline=False)
    prose = BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in INLINE.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        commands = re.sub(r"\s*\n\s*", " ", match[1]).replace(".venv/bin/", "")
        blocks.append(Block(f"{page.relative_to(ROOT)}:{line}", commands, inline=True))
    return blocks


def recorded_commands(block: Block, folder: Path) -> list[list[str]]:
    """Return the words of each command that bash starts for a block, without starting it.

    :param folder: is made
    """
    record, work = folder / "recorded", folder / "work"
    work.mkdir(parents=True)
    splits = ("train", "valid", "val", "test_2016_flickr")
    texts = [f"{split}.{language}" for split in splits for language in ("en", "de")]
    for file in (*texts, *re.findall(r"(?<!<)<\s*([\w./-]+)", block.text)):
        (work / file).touch()
    for file in re.findall(r">\s*([\w./-]+)", block.text):
        (work / file).parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["/bin/bash", "-c", RECORD + block.text],
        cwd=work,
        env={"PATH": "/nowhere", "RECORDED": str(record), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block.name}: {done.stderr}\n{block.text}"
    if not record.exists():
        return []
    return [line.split("\1")[:-1] for line in record.read_text(encoding="utf-8").split("\n")[:-1]]
