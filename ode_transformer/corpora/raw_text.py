"""Sentences and pairs of sentences from raw files as they are published, as streams.

A recipe says where a part of its corpus is and how it is written:

    {file: europarl_v7, source: training/europarl-v7.de-en.en, target: training/europarl-v7.de-en.de}
    {file: wmt13_test, format: segments, source: test/newstest2013-src.en.sgm, target: test/newstest2013-src.de.sgm}
    {source_file: multi30k_train_en, target_file: multi30k_train_de}
    {file: setimes2_en_ro, format: tmx, languages: [en, ro]}
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import IO, Annotated, Literal, TypeVar
from xml.etree import ElementTree

from pydantic import Field, model_validator

from ode_transformer.corpora.raw_archives import open_texts, reading
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import decode_stream
from ode_transformer.support.yaml_file import YamlSection

Pair = tuple[str, str]
Item = TypeVar("Item", str, Pair)

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-f]+);", re.IGNORECASE)
_DESCRIBING = re.compile(r"<(url|talkid|keywords)>")
_SPOKEN = re.compile(r"</?(title|description)>")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class PairPart(YamlSection):
    """Where a part of a parallel corpus is: in one archive, in two files, or in one text with both languages.

    :param file: name of a source; ``source_file`` and ``target_file`` where each side has its own
    :param source: name of the source side in an archive; ``*`` and ``?`` for several, which follow each other
    :param target: likewise
    :param format: that of both sides, or ``tmx`` or ``tsv``, which have both in one text
    :param member: name of such a text in an archive
    :param languages: of the source and the target in a TMX file
    :param columns: of the source and the target in lines divided by tabs, counted from 1
    :param straight_apostrophes: ’ becomes ', as fairseq's preparation of IWSLT14 has it in its test sets alone
    """

    file: str | None = None
    source_file: str | None = None
    target_file: str | None = None
    source: str | None = None
    target: str | None = None
    format: Literal["lines", "segments", "tagged", "tmx", "tsv"] = "lines"
    member: str | None = None
    languages: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    columns: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=2, max_length=2)] | None = None
    straight_apostrophes: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> PairPart:
        joint = self.format in ("tmx", "tsv")
        if (self.languages is not None) != (self.format == "tmx"):
            raise ValueError("languages go with the format tmx, and it needs them")
        if (self.columns is not None) != (self.format == "tsv"):
            raise ValueError("columns go with the format tsv, and it needs them")
        if joint:
            if self.file is None or self.source or self.target or self.source_file or self.target_file:
                raise ValueError(f"the format {self.format} has both sides in one file: it takes file and member")
        elif self.member:
            raise ValueError("member goes with the formats tmx and tsv; the others take source and target")
        elif self.file is None and not (self.source_file and self.target_file):
            raise ValueError("has to have file, or source_file and target_file")
        elif self.file is not None and (self.source_file or self.target_file):
            raise ValueError("has file as well as source_file or target_file")
        elif self.file is not None and not (self.source and self.target):
            raise ValueError("has to name source and target, the members of file")
        return self

    @property
    def files(self) -> list[str]:
        """Names of the sources that it is read from."""
        return [name for name in (self.file, self.source_file, self.target_file) if name is not None]


def read_pairs(files: Mapping[str, Path], part: PairPart) -> Iterator[Pair]:
    """The pairs of a part, source first, in the order of the files.

    :param files: where each source is
    :raises UserError: a member is missing; a file is broken, empty or not in UTF-8; the sides have not the same length;
        a language or column is not there
    """
    pairs = _joint(files, part) if part.format in ("tmx", "tsv") else _side_by_side(files, part)
    if not part.straight_apostrophes:
        return pairs
    return ((source.replace("’", "'"), target.replace("’", "'")) for source, target in pairs)


def _joint(files: Mapping[str, Path], part: PairPart) -> Iterator[Pair]:
    assert part.file is not None
    if part.languages is not None:
        languages = part.languages
        return _read(files[part.file], part.member, lambda text, name: _units(text, name, languages))
    columns = part.columns
    assert columns is not None
    return _read(files[part.file], part.member, lambda text, name: _columns(text, name, columns))


def _side_by_side(files: Mapping[str, Path], part: PairPart) -> Iterator[Pair]:
    texts = ((part.file or part.source_file, part.source), (part.file or part.target_file, part.target))
    places = [(files[str(file)], member) for file, member in texts]
    source, target = (_read(path, member, _TEXTS[part.format]) for path, member in places)
    for number, (one, other) in enumerate(zip_longest(source, target)):
        if one is None or other is None:
            lines = number + 1 + sum(1 for _ in (source if other is None else target))
            counts = (lines, number) if other is None else (number, lines)
            told = [f"{_name(*place)} has {count:,}" for place, count in zip(places, counts, strict=True)]
            raise UserError(f"sides of different length: {', '.join(told)}")
        yield one, other


def _name(path: Path, member: str | None) -> str:
    return f"{path}: {member}" if member else str(path)


def _read(path: Path, member: str | None, read: Callable[[IO[bytes], str], Iterator[Item]]) -> Iterator[Item]:
    """All that a reader finds in a file, or in the members of an archive."""
    nothing = True
    with reading(path):
        for name, text in open_texts(path, member):
            for item in read(text, name):
                nothing = False
                yield item
    if nothing:
        raise UserError(f"{_name(path, member)}: nothing to be read in it")


def _segments(text: IO[bytes], name: str) -> Iterator[str]:
    """What ``<seg>`` elements hold, without the spaces around it and with its entities as characters.

    Not by a parser of XML, which much of what is published so is not.
    """
    begun, rest = 0, ""
    for number, line in enumerate(decode_stream(text, name), start=1):
        rest = f"{rest} {line}" if begun else line
        end = 0
        for found in _SEGMENT.finditer(rest):
            if "<seg" in found[1]:
                raise UserError(f"{name}: line {begun or number}: <seg> without its end")
            yield _ENTITY.sub(lambda entity: html.unescape(entity[0]), found[1].strip(" \t"))
            begun, end = 0, found.end()
        start = rest.find("<seg", end)
        begun, rest = (begun or number, rest[start:]) if start >= 0 else (0, "")
    if begun:
        raise UserError(f"{name}: line {begun}: <seg> without its end")


def _tagged(text: IO[bytes], name: str) -> Iterator[str]:
    """The lines of IWSLT's ``train.tags.*``: titles and descriptions count as sentences, the other tags do not."""
    for line in decode_stream(text, name):
        if not _DESCRIBING.search(line):
            yield _SPOKEN.sub("", line).strip(" \t")


def _units(text: IO[bytes], name: str, languages: list[str]) -> Iterator[Pair]:
    """The translation units of a TMX file; entities that point outside of it are an error of the parser."""
    body, number = None, 0
    try:
        for event, element in ElementTree.iterparse(text, ("start", "end")):
            tag = element.tag.rpartition("}")[2]
            if event == "start":
                body = element if tag == "body" else body
                continue
            if tag != "tu":
                continue
            number += 1
            sides = {
                (side.get(_LANGUAGE) or side.get("lang", "")).lower(): " ".join("".join(segment.itertext()).split("\n"))
                for side in element.iter("tuv")
                for segment in side.iter("seg")
            }
            if absent := [language for language in languages if language.lower() not in sides]:
                raise UserError(f"{name}: unit {number} is not in {absent[0]}, but in {', '.join(sides) or 'nothing'}")
            source, target = (sides[language.lower()].strip() for language in languages)
            yield source, target
            if body is not None:
                body.clear()  # of the units so far
    except ElementTree.ParseError as error:
        raise UserError(f"{name}: not to be read as XML: {error}") from error


def _columns(text: IO[bytes], name: str, columns: list[int]) -> Iterator[Pair]:
    source, target = (column - 1 for column in columns)
    for number, line in enumerate(decode_stream(text, name), start=1):
        fields = line.split("\t")
        if len(fields) < max(columns):
            raise UserError(f"{name}: line {number} has {len(fields)} columns, and {max(columns)} is asked for")
        yield fields[source], fields[target]


# One text to a side: lines as they are; <seg> elements (WMT's .sgm, IWSLT's .xml); IWSLT's train.tags.*
_TEXTS: dict[str, Callable[[IO[bytes], str], Iterator[str]]] = {
    "lines": decode_stream,
    "segments": _segments,
    "tagged": _tagged,
}
