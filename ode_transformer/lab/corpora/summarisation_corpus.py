"""CNN/DailyMail (Hermann et al. 2015; Nallapati et al. 2016): news articles and their editors' summaries.

The raw files are two archives of stories and three lists of addresses, one for each split; the SHA-1 of its address is
the name of a story's file. A story is an article, then highlights, each after a line ``@highlight``. The source is the
lines of the article, joined; the target the highlights, joined, each a sentence.

A line without a mark at its end (captions and highlights have none) gets a full stop; stories without an article are
left out. Nothing else is removed: neither ``(CNN)`` nor bylines. docs/summarisation.md has the ways to tokenise.

A temporary file keeps the stories until they are written in the order of the lists, so that the corpus does not depend
on the order in the archives.
"""

import hashlib
from pathlib import PurePosixPath
from tempfile import TemporaryFile
from typing import Annotated, Literal

from pydantic import Field

from ode_transformer.lab.corpora.cleaning import moses_tokenizer
from ode_transformer.lab.corpora.corpus import SplitWriter, Suffix, TwoSidedCorpus
from ode_transformer.lab.corpora.raw_text import Files, open_texts, read_texts
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import decode_lines
from ode_transformer.support.moses import split_last_full_stop
from ode_transformer.support.parallel import map_chunks

ARCHIVES = ("cnn_stories", "dailymail_stories")
LISTS = {"train": "cnn_dm_train_urls", "valid": "cnn_dm_val_urls", "test": "cnn_dm_test_urls"}
SOURCES = (*ARCHIVES, *LISTS.values())  # names of the raw files

END_MARKS = frozenset(".!?'`\"’”)")
HIGHLIGHT = "@highlight"


class SummarisationCorpus(TwoSidedCorpus):
    """Settings of the summarisation corpus.

    :param lowercase: replace capital letters
    :param tokenise: separate punctuation from words
    :param escape: write special characters as Moses does, such as ``&apos;``
    :param whole_texts: tokenise the joined lines at once, as Moses does whose last word never keeps its full stop
    """

    kind: Literal["summaries"] = "summaries"
    source: Suffix = "source"
    target: Suffix = "target"
    lowercase: bool = True
    tokenise: bool = True
    escape: Annotated[bool, Field(exclude_if=lambda escape: not escape)] = False
    whole_texts: Annotated[bool, Field(exclude_if=lambda whole: not whole)] = False

    @property
    def sources(self) -> list[str]:
        return list(SOURCES)

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        lists = {split: [story_name(line) for line in read_texts(files[name])] for split, name in LISTS.items()}
        listed = {name for names in lists.values() for name in names}
        texts_of_archives = (text for archive in ARCHIVES for text in open_texts(files[archive], "*.story"))
        stories = ((name, text.read()) for name, text in texts_of_archives if PurePosixPath(name).name in listed)
        offsets = {}
        with TemporaryFile(dir=splits.folder) as texts:
            for name, source, target in map_chunks(self.prepare_stories, stories, workers, "stories read", 500):
                offsets[PurePosixPath(name).name] = texts.tell()
                texts.write(f"{source}\n{target}\n".encode())
            for split, names in lists.items():
                if missing := [name for name in names if name not in offsets]:
                    raise UserError(f"{files[LISTS[split]]}: {missing[0]} is in none of the archives")
                for name in names:
                    texts.seek(offsets[name])
                    source, target = (texts.readline().decode().strip() for _ in range(2))
                    if source and target:
                        splits.add(split, (source, target))
                    else:
                        splits.counts["left out"] += 1
                splits.check_filled(split, files=[files[LISTS[split]]])
        print_progress(f"{splits.counts['left out']:,} stories without an article or highlights left out")

    def prepare_stories(self, stories: list[tuple[str, bytes]]) -> list[tuple[str, str, str]]:
        """Return name, source and target of each story.

        :param stories: name for errors, and content of the file
        """
        return [(name, *self.source_and_target(decode_lines(content, name))) for name, content in stories]

    def source_and_target(self, story: list[str]) -> tuple[str, str]:
        """Return source and target of a story's lines; either may be empty."""
        lines = [text for line in story if (text := " ".join(line.split()))]
        end = next((number for number, line in enumerate(lines) if line.startswith(HIGHLIGHT)), len(lines))
        highlights = [line for line in lines[end:] if not line.startswith(HIGHLIGHT)]
        return self._prepare_text(lines[:end]), self._prepare_text(highlights)

    def _prepare_text(self, lines: list[str]) -> str:
        if not self.whole_texts:
            return " ".join(map(self._prepare_line, lines))
        text = " ".join(line if line[-1] in END_MARKS else f"{line}." for line in lines)
        return split_last_full_stop(self._prepare_line(text))

    def _prepare_line(self, line: str) -> str:
        """Return a line tokenised and in lower case, as chosen, with a mark at its end."""
        is_marked = line[-1:] in END_MARKS
        if self.tokenise:
            line = moses_tokenizer("en").tokenize(line, return_str=True, escape=self.escape).strip()
        if not is_marked and line[-1:] not in END_MARKS and not self.whole_texts:
            line += " ." if self.tokenise else "."
        return line.lower() if self.lowercase else line


def story_name(address: str) -> str:
    """Return the name of the file with the story at an address."""
    return f"{hashlib.sha1(address.strip().encode()).hexdigest()}.story"
