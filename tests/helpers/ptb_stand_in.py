"""Small text in the form of Mikolov's Penn Treebank: lower-case, without punctuation, rare words as <unk>."""

import random
from pathlib import Path

from summarisation_stand_in import pack

from ode_transformer.lab.corpora.text_corpora import MEMBERS

SENTENCES = {"train": 120, "valid": 20, "test": 20}
SUBJECTS = ["mr. <unk>", "the company", "a spokesman", "the bank", "<unk> corp.", "the treasury"]
VERBS = ["said", "sold", "bought", "expects", "reported", "closed"]
OBJECTS = ["N shares", "a loss of $ N million", "its <unk> unit", "no change", "N N of the <unk>", "higher prices"]
TIMES = ["yesterday", "in the third quarter", "last year", "by friday", "for $ N a share", "at N cents"]
TYPES = len({word for phrases in (SUBJECTS, VERBS, OBJECTS, TIMES) for text in phrases for word in text.split()})


def sentences(split: str) -> list[str]:
    """Return the sentences of a split, with a space at both ends as in the original."""
    chance = random.Random(split)
    return [f" {' '.join(map(chance.choice, (SUBJECTS, VERBS, OBJECTS, TIMES)))} " for _ in range(SENTENCES[split])]


def write_raw(folder: Path) -> dict[str, Path]:
    """Write the archive and the separate files; return their paths by their names in the source list."""
    texts = {split: "".join(f"{line}\n" for line in sentences(split)) for split in SENTENCES}
    files = {"ptb": folder / "simple-examples.tgz"}
    pack(files["ptb"], {"./simple-examples/README": "", **{f"./{MEMBERS[split]}": texts[split] for split in texts}})
    (folder / "ptb").mkdir()
    for split, text in texts.items():
        path = files[f"ptb_{split}"] = folder / "ptb" / f"ptb.{split}.txt"
        path.write_text(text)
    return files
