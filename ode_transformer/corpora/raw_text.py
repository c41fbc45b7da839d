"""Sentences and sentence pairs from raw files as they are published, as streams.

A recipe states the location and the format of each file of its corpus:

    {file: europarl_v7, source: training/europarl-v7.de-en.en, target: training/europarl-v7.de-en.de}
    {file: wmt13_test, format: segments, source: test/newstest2013-src.en.sgm, target: test/newstest2013-src.de.sgm}
    {source_file: multi30k_train_en, target_file: multi30k_train_de}
    {file: setimes2_en_ro, format: tmx, languages: [en, ro]}
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Annotated, Literal, TypeVar
from xml.etree import ElementTree

from pydantic import Field, model_validator

from ode_transformer.corpora.raw_archives import open_texts
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.lines import decode_stream
from ode_transformer.support.yaml_file import YamlSection

Pair = tuple[str, str]
Item = TypeVar("Item", str, Pair)

MAX_SEGMENT_LINES = 1000
MAX_UNIT_BYTES = 1 << 22  # from one translation unit to the next
MAX_DEPTH = 100  # of elements in a TMX file

_SEGMENT_START = re.compile(r"<seg\b")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,4000}|#x[0-9a-f]{1,4000});", re.IGNORECASE)
_DESCRIBING = re.compile(r"<(url|talkid|keywords)>")
_SPOKEN = re.compile(r"</?(title|description)>")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class PairLocation(YamlSection):
    """Location and format of the sentence pairs of a corpus: in one archive, in two files, or in one bilingual text.

    :param file: name of a source; ``source_file`` and ``target_file`` if each side has its own
    :param source: name of the source side in an archive; ``*`` and ``?`` for several members, which are concatenated
    :param target: the same for the target side
    :param format: of both sides, or ``tmx`` or ``tsv``, which have both in one text
    :param member: name of such a text in an archive
    :param languages: of source and target in a TMX file
    :param columns: of source and target in tab-separated lines, counted from 1
    :param straight_apostrophes: replace ’ by ', as fairseq's preparation of IWSLT14 does in its test sets only
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
    def _check_consistency(self) -> PairLocation:
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
        """Names of the sources to read."""
        return [name for name in (self.file, self.source_file, self.target_file) if name is not None]


def read_pairs(files: Mapping[str, Path], location: PairLocation) -> Iterator[Pair]:
    """Yield sentence pairs, source first, in the order of the files.

    :param files: paths by the sources' names
    :raises UserError: a member, language or column is missing; a file is broken, empty or not UTF-8; the sides have
        different lengths
    """
    pairs = _bilingual(files, location) if location.format in ("tmx", "tsv") else _side_by_side(files, location)
    if not location.straight_apostrophes:
        return pairs
    return ((source.replace("’", "'"), target.replace("’", "'")) for source, target in pairs)


def _bilingual(files: Mapping[str, Path], location: PairLocation) -> Iterator[Pair]:
    assert location.file is not None
    path, member = files[location.file], location.member
    if location.languages is not None:
        return _read(path, member, partial(_translation_units, languages=location.languages))
    assert location.columns is not None
    return _read(path, member, partial(_columns, columns=location.columns))


def _side_by_side(files: Mapping[str, Path], location: PairLocation) -> Iterator[Pair]:
    sides = ((location.source_file, location.source), (location.target_file, location.target))
    places = [(files[str(location.file or file)], member) for file, member in sides]
    for texts in zip_longest(*(_texts(path, member, _MONOLINGUAL[location.format]) for path, member in places)):
        if None in texts:
            name = next(text[0] for text in texts if text is not None)
            raise UserError(f"{name}: the other side has fewer members")
        names, (source, target) = zip(*texts, strict=True)
        matched = [_matched_parts(name, *place) for name, place in zip(names, places, strict=True)]
        if len(matched[0]) == len(matched[1]) and matched[0] != matched[1]:
            raise UserError(f"{names[0]} stands beside {names[1]}: name the members one by one, in the same order")
        for number, (source_line, target_line) in enumerate(zip_longest(source, target)):
            if source_line is None or target_line is None:
                length = number + 1 + sum(1 for _ in (source if target_line is None else target))
                lengths = (length, number) if target_line is None else (number, length)
                if 0 in lengths:
                    raise _without_text(*places[lengths.index(0)])
                described = [f"{name} has {length:,}" for name, length in zip(names, lengths, strict=True)]
                raise UserError(f"sides of different length: {', '.join(described)}")
            yield source_line, target_line


def _matched_parts(name: str, path: Path, member: str | None) -> tuple[str, ...]:
    """Return what ``*``, ``?`` and ``[…]`` stand for in the name of a text."""
    wildcards = {"*": "(.*)", "?": "(.)"}
    parts = re.split(r"(\*|\?|\[!?[^\]]+\])", (member or "").removeprefix("./"))
    pattern = "".join(
        wildcards.get(part, f"({part.replace('[!', '[^')})") if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
    match = re.fullmatch(pattern, name.removeprefix(f"{path}: "), re.DOTALL)
    return match.groups() if match else ()


def _read(path: Path, member: str | None, parse: Callable[[IO[bytes], str], Iterator[Item]]) -> Iterator[Item]:
    """Yield the items that a parser reads from a file, or from the members of an archive.

    :raises UserError: there are none
    """
    for _, items in _texts(path, member, parse):
        yield from items


def _texts(
    path: Path, member: str | None, parse: Callable[[IO[bytes], str], Iterator[Item]]
) -> Iterator[tuple[str, Iterator[Item]]]:
    """Yield the name and the items of a file, or of each of the members of an archive.

    :raises UserError: there are no items in any
    """
    empty = True
    for name, text in open_texts(path, member):
        items = parse(text, name)
        first = list(islice(items, 1))
        empty = empty and not first
        yield name, chain(first, items)
    if empty:
        raise _without_text(path, member)


def _without_text(path: Path, member: str | None) -> UserError:
    problem = "is empty" if path.is_file() and not path.stat().st_size else "contains no text in this format"
    return UserError(f"{path}: {member}: {problem}" if member else f"{path}: {problem}")


def _segments(text: IO[bytes], name: str) -> Iterator[str]:
    """Yield the content of ``<seg>`` elements, stripped of spaces, with entities replaced.

    Many published files are not well-formed, so this is not a parser of XML.
    """
    first_line, pieces = 0, []  # of a segment that goes on in the next line
    for number, line in enumerate(decode_stream(text, name), start=1):
        pieces.append(line)
        first_line = first_line or number
        if len(pieces) > MAX_SEGMENT_LINES:
            break
        if first_line < number and "</seg>" not in line:
            continue
        segments, unfinished = _split_segments(" ".join(pieces))
        for segment in segments:
            if "<seg" in segment:
                raise UserError(f"{name}: line {first_line}: <seg> without its end")
            yield _ENTITY.sub(_character, segment.strip(" \t"))
            first_line = number
        pieces = [unfinished] if unfinished else []
        first_line = first_line if unfinished else 0
    if pieces:
        raise UserError(f"{name}: line {first_line}: <seg> without its end")


def _split_segments(text: str) -> tuple[list[str], str]:
    """Return the contents of complete ``<seg>`` elements, and the text from a start tag without end on."""
    segments: list[str] = []
    position = 0
    while match := _SEGMENT_START.search(text, position):
        content = text.find(">", match.end()) + 1
        end = text.find("</seg>", content) if content else -1
        if end < 0:
            return segments, text[match.start() :]
        segments.append(text[content:end])
        position = end + len("</seg>")
    return segments, ""


def _character(entity: re.Match[str]) -> str:
    return html.unescape(entity[0]).replace("\n", " ")  # a line feed would make two lines of a sentence


def _tagged(text: IO[bytes], name: str) -> Iterator[str]:
    """Yield the sentences of IWSLT's ``train.tags.*``: titles and descriptions count, other tags do not."""
    for line in decode_stream(text, name):
        if not _DESCRIBING.search(line):
            yield _SPOKEN.sub("", line).strip(" \t")


class _UnitReader:
    """Stream that bounds the bytes between two translation units, which the XML parser keeps in memory."""

    def __init__(self, text: IO[bytes], name: str) -> None:
        self.text, self.name = text, name
        self.bytes_since_unit = 0

    def read(self, size: int = -1) -> bytes:
        data = self.text.read(size)
        self.bytes_since_unit += len(data)
        if self.bytes_since_unit > MAX_UNIT_BYTES:
            raise UserError(f"{self.name}: no end of a translation unit (</tu>) in {MAX_UNIT_BYTES:,} bytes")
        return data


def _translation_units(text: IO[bytes], name: str, languages: list[str]) -> Iterator[Pair]:
    """Yield the pairs of a TMX file. The parser refuses entities that refer to other files."""
    ancestors: list[ElementTree.Element] = []
    number, reader = 0, _UnitReader(text, name)
    try:
        for event, element in ElementTree.iterparse(reader, ("start", "end")):
            if event == "start":
                ancestors.append(element)
                if len(ancestors) > MAX_DEPTH:
                    raise UserError(f"{name}: more than {MAX_DEPTH} elements within each other")
                continue
            ancestors.pop()
            if element.tag.rpartition("}")[2] != "tu":
                continue
            number, reader.bytes_since_unit = number + 1, 0
            segments = {
                (side.get(_LANGUAGE) or side.get("lang", "")).lower(): " ".join("".join(segment.itertext()).split("\n"))
                for side in element.iterfind(".//{*}tuv")
                for segment in side.iterfind(".//{*}seg")
            }
            if absent := [language for language in languages if language.lower() not in segments]:
                present = ", ".join(segments) or "nothing"
                raise UserError(f"{name}: unit {number} is not in {absent[0]}, but in {one_line(present)}")
            source, target = (segments[language.lower()].strip() for language in languages)
            yield source, target
            for ancestor in ancestors:
                ancestor.clear()  # frees the units so far
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the last two: an unknown encoding
        raise UserError(f"{name}: cannot be read as XML: {error}") from error


def _columns(text: IO[bytes], name: str, columns: list[int]) -> Iterator[Pair]:
    source, target = (column - 1 for column in columns)
    for number, line in enumerate(decode_stream(text, name), start=1):
        fields = line.split("\t")
        if len(fields) < max(columns):
            raise UserError(f"{name}: line {number} has {len(fields)} columns, but column {max(columns)} is needed")
        yield fields[source], fields[target]


# Lines as they are; <seg> elements (WMT's .sgm, IWSLT's .xml); IWSLT's train.tags.*
_MONOLINGUAL: dict[str, Callable[[IO[bytes], str], Iterator[str]]] = {
    "lines": decode_stream,
    "segments": _segments,
    "tagged": _tagged,
}
