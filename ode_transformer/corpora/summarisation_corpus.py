"""CNN/DailyMail (Hermann et al. 2015; Nallapati et al. 2016): an article and the summary of it that its editors wrote.

The raw files are the two archives of stories and three lists of addresses, one for each split; a story's file is
called by the SHA-1 of its address. A story is lines of text, then highlights, each after a line ``@highlight``:

    source    the article's lines, joined
    target    the highlights, each a sentence that ends in a full stop or another mark, joined

As See, Liu and Manning (2017) prepared it, and fairseq's authors after them (Edunov et al. 2019): tokens, lower-cased,
a full stop after each line that has no mark at its end (captions and highlights have none), and stories without an
article left out. Their tokenizer was Stanford's; here it is Moses', without its escapes, which ROUGE would count as
words. Nothing else is removed: neither ``(CNN)`` nor bylines.

The archives are read once, as streams. What they hold is kept in a file until the lists say in which order it is
wanted, so that the corpus does not depend on how the archives were packed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO, Literal

from pydantic import Field

from ode_transformer.corpora.corpus import Splits, TwoSidedCorpus
from ode_transformer.corpora.moses import Tokenizer
from ode_transformer.corpora.raw_archives import open_texts, reading
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory
from ode_transformer.support.lines import decode_lines, read_lines
from ode_transformer.support.parallel import map_chunks

ARCHIVES = ("cnn_stories", "dailymail_stories")
LISTS = {"train": "cnn_dm_train_urls", "valid": "cnn_dm_val_urls", "test": "cnn_dm_test_urls"}
SOURCES = (*ARCHIVES, *LISTS.values())  # the raw files, by name

END_MARKS = frozenset(".!?'`\"’”)")
HIGHLIGHT = "@highlight"
# "LONDON, England (CNN) -- " or "(CNN)"
_DATELINE = re.compile(r"^.{0,80}?\(CNN\)\s*(?:--\s*)?")


class SummarisationCorpus(TwoSidedCorpus):
    """What becomes of the text.

    :param lowercase: no capital letters
    :param tokenise: punctuation divided from words
    :param strip_dateline: CNN's place and ``(CNN) --`` before an article's first words removed
    :param source_tokens: articles are cut after so many; fairseq's ``--truncate-source`` cuts by pieces instead
    """

    kind: Literal["summaries"] = "summaries"
    source: str = "source"
    target: str = "target"
    lowercase: bool = True
    tokenise: bool = True
    strip_dateline: bool = False
    source_tokens: Annotated[int, Field(ge=1)] | None = None

    @property
    def sources(self) -> list[str]:
        return list(SOURCES)

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        return build(files, output, self, workers)


Story = tuple[str, bytes]  # what to call it in an error, and its file


def build(files: Mapping[str, Path], output: Path, options: SummarisationCorpus, workers: int) -> dict[str, int]:
    """Makes the corpus folder; returns how many lines each split has, and how many stories were left out.

    :param files: the raw files of ``SOURCES``
    :raises UserError: a raw file is broken, an archive lacks a listed story, or a split is empty
    """
    lists = {split: [story_name(line) for line in read_lines(files[name])] for split, name in LISTS.items()}
    wanted = {name for names in lists.values() for name in names}
    with atomic_directory(output) as folder, Splits(folder, options.languages) as splits:
        texts = folder / "texts"
        with open(texts, "wb") as file:
            places = _collect(_stories(files, wanted), file, options, workers)
        with open(texts, "rb") as file:
            for split, names in lists.items():
                for number, name in enumerate(names, start=1):
                    if name not in places:
                        list_name = files[LISTS[split]]
                        raise UserError(f"{list_name}: line {number}: its story, {name}, is in none of the archives")
                for source, target in _texts(file, [places[name] for name in names]):
                    if source and target:
                        splits.add(split, (source, target))
                    else:
                        splits.counts["left out"] += 1
                if not splits.counts[split]:
                    raise UserError(f"{files[LISTS[split]]}: no story for the {split} split")
        texts.unlink()
    left_out = splits.counts.pop("left out", 0)
    print_progress(f"{left_out:,} stories without an article or highlights left out")
    return {**splits.counts, "left out": left_out}


def story_name(address: str) -> str:
    """Name of the file of the story at an address."""
    return f"{hashlib.sha1(address.strip().encode()).hexdigest()}.story"


def _stories(files: Mapping[str, Path], wanted: set[str]) -> Iterator[Story]:
    for archive in ARCHIVES:
        with reading(files[archive]):
            for name, stream in open_texts(files[archive], "*.story"):
                if PurePosixPath(name).name in wanted:
                    yield name, stream.read()


def _collect(stories: Iterator[Story], file: BinaryIO, options: SummarisationCorpus, workers: int) -> dict[str, int]:
    """Writes source and target of each story, a line each; returns where by the story's name."""
    places = {}
    for name, source, target in map_chunks(partial(prepare, options), stories, workers, "stories read", 500):
        places[PurePosixPath(name).name] = file.tell()
        file.write(f"{source}\n{target}\n".encode())
    return places


def _texts(file: BinaryIO, places: list[int]) -> Iterator[tuple[str, str]]:
    """Source and target of the stories at these places."""
    for place in places:
        file.seek(place)
        yield file.readline().decode().strip(), file.readline().decode().strip()


def prepare(options: SummarisationCorpus, stories: list[Story]) -> list[tuple[str, str, str]]:
    """Name, source and target of each story."""
    return [(name, *sides(decode_lines(data, name), options)) for name, data in stories]


def sides(story: list[str], options: SummarisationCorpus) -> tuple[str, str]:
    """Source and target of a story's lines; either may be empty."""
    lines = [text for line in story if (text := " ".join(line.split()))]
    first = next((number for number, line in enumerate(lines) if line.startswith(HIGHLIGHT)), len(lines))
    article, highlights = lines[:first], [line for line in lines[first:] if not line.startswith(HIGHLIGHT)]
    if options.strip_dateline and article:
        article[0] = _DATELINE.sub("", article[0])
    source = " ".join(ended(line, options) for line in article if line).split()
    return " ".join(source[: options.source_tokens]), " ".join(ended(line, options) for line in highlights)


def ended(line: str, options: SummarisationCorpus) -> str:
    """A line as the options want it, with a mark at its end."""
    if options.tokenise:
        line = _tokenizer().tokenize(line, return_str=True, escape=False)
    if line[-1:] not in END_MARKS:
        line += " ." if options.tokenise else "."
    return line.lower() if options.lowercase else line


@cache  # slow to make
def _tokenizer() -> Tokenizer:
    return Tokenizer("en")
