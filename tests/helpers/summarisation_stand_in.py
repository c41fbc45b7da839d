"""Small raw files in the form of CNN/DailyMail's: two archives of stories and three lists of addresses."""

import io
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path

from plain_models import PAIRS

from ode_transformer.lab.corpora.summarisation_corpus import story_name

PLACES = ["Lyon", "Oslo", "Porto", "Turin", "Ghent", "Kyoto", "Quito", "Perth"]
PEOPLE = ["The mayor", "A teacher", "The coach", "A nurse", "The pilot", "A farmer", "The judge", "A singer"]
EVENTS = ["opened the new bridge", "won the final race", "found a lost painting", "met the foreign minister"]
TIMES = ["on Monday", "last week", "in early March", "after a long winter", "before the vote", "during the storm"]
FILLING = [source for source, _ in PAIRS[:16]]
FILLING += ['Some were not amused: "Too loud," said one.', "The U.S. embassy sent it."]
SPLITS = {"train": 44, "val": 8, "test": 8}
EMPTY = 5  # number of the story without an article; it is for training
LONG = 44  # number of the story with a highlight that no model takes; it is for validation


def story(number: int) -> str:
    """Return a story whose first lines say the same as its highlights; one story has no article."""
    chance = random.Random(number)
    town, person, event, time = (chance.choice(choices) for choices in (PLACES, PEOPLE, EVENTS, TIMES))
    head = f"{town} (CNN) -- " if number % 2 else ""
    article = [f"{head}{person} of {town} {event} {time}.", *chance.sample(FILLING, 6), "Photo: the square at noon"]
    highlights = [f"{person} of {town} {event}", f"It happened {time}", *(["again " * 1024] if number == LONG else [])]
    lines = ([] if number == EMPTY else article) + [line for text in highlights for line in ("@highlight", text)]
    return "\n\n".join(lines) + "\n"


def address(number: int) -> str:
    return f"http://news.example/{'cnn' if number % 2 else 'mail'}/2009/{number:03d}.html"


def pack(path: Path, members: Mapping[str, str | bytes]) -> Path:
    """Write an archive with these files, compressed as its name says; return its path."""
    with tarfile.open(path, {".tar": "w", ".bz2": "w:bz2"}.get(path.suffix, "w:gz")) as archive:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            information = tarfile.TarInfo(name)
            information.size = len(data)
            archive.addfile(information, io.BytesIO(data))
    return path


def write_raw(folder: Path) -> dict[str, Path]:
    """Write the raw files of 60 stories; return their paths by their names in the source list."""
    numbers = list(range(sum(SPLITS.values())))
    files = {name: folder / f"{name}.tgz" for name in ("cnn_stories", "dailymail_stories")}
    for kind, remainder in (("cnn", 1), ("dailymail", 0)):
        site_numbers = [number for number in numbers if number % 2 == remainder]
        stories = {f"{kind}/stories/{story_name(address(number))}": story(number) for number in site_numbers}
        pack(files[f"{kind}_stories"], dict(sorted(stories.items())))
    (folder / "cnn_dm").mkdir()
    for split, size in SPLITS.items():
        path = files[f"cnn_dm_{split}_urls"] = folder / "cnn_dm" / f"all_{split}.txt"
        path.write_text("".join(f"{address(number)}\n" for number in numbers[:size]))
        numbers = numbers[size:]
    return files
