"""Sentences and sentence pairs from raw files as they are published, as streams.

A recipe states the location and the format of each file of its corpus:

    {file: europarl_v7, source: training/europarl-v7.de-en.en, target: training/europarl-v7.de-en.de}
    {file: wmt13_test, format: segments, source: test/newstest2013-src.en.sgm, target: test/newstest2013-src.de.sgm}
    {source_file: multi30k_train_en, target_file: multi30k_train_de}
    {file: setimes2_en_ro, format: tmx, languages: [en, ro]}

An archive is never unpacked, and read no further than needed. A compressed tar is decompressed from its start to the
requested member, so reading two members side by side decompresses it at most twice. A zip file and an uncompressed tar
are entered at the member. Links and special files are skipped, and names of members are only compared, never used as
paths.
"""

import difflib
import gzip
import html
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self
from xml.etree import ElementTree

from pydantic import Field, model_validator

from ode_transformer.support.errors import UserError, errors_name
from ode_transformer.support.lines import decode_stream
from ode_transformer.support.yaml_file import YamlSection

Files = Mapping[str, Path]  # paths of the raw files by name

BUFFER_BYTES = 1 << 16
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>")
_SEGMENT_START = re.compile(r"<seg\b.*")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,4000}|#x[0-9a-f]{1,4000});", re.IGNORECASE)
_DESCRIBING = re.compile(r"<(url|talkid|keywords)>")
_SPOKEN = re.compile(r"</?(title|description)>")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Keys that a location needs, and keys that it may have
_BILINGUAL_KEYS = {"tmx": ({"file", "languages"}, {"member"}), "tsv": ({"file", "columns"}, {"member"})}
_MONOLINGUAL_KEYS = [({"file", "source", "target"}, set()), ({"source_file", "target_file"}, {"source", "target"})]


def open_texts(path: Path, pattern: str | None) -> Iterator[tuple[str, IO[bytes]]]:
    """Open a file, or members of a tar or zip file, one after the other; each must be read before the next.

    A text that gzip has compressed is decompressed, whatever its name.

    :param pattern: name of a member, or a shell pattern for several; None if the file is the text
    :returns: the text's name for error messages, and its stream
    """
    if pattern is None:
        with open(path, "rb") as file:
            yield str(path), _decompress(file)
        return
    pattern, other_names, has_matched = pattern.removeprefix("./"), [], False
    for name, open_member in _members(path):
        if name != pattern and not fnmatchcase(name, pattern):
            other_names.append(name)
            continue
        has_matched = True
        with errors_name(path), open_member() as stream:
            yield f"{path}: {name}", _decompress(stream)
        if name == pattern:
            return
    if not has_matched:
        similar = ", ".join(difflib.get_close_matches(pattern, other_names, 3, cutoff=0)) or "nothing"
        raise UserError(f"{path}: no {pattern} in it; there is {similar}")


def read_texts(path: Path, pattern: str | None = None) -> Iterator[str]:
    """Yield the lines of the texts that :func:`open_texts` opens."""
    for name, text in open_texts(path, pattern):
        yield from decode_stream(text, name)


def _members(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield name and opening function of each member of a zip or tar file; each must be opened before the next."""
    if zipfile.is_zipfile(path):
        with errors_name(path), zipfile.ZipFile(path) as zipped:
            for name in zipped.namelist():
                yield name, partial(zipped.open, name)
        return
    with errors_name(path), tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield member.name.removeprefix("./"), partial(archive.extractfile, member)


def _decompress(stream: Any) -> Any:
    buffered = io.BufferedReader(stream, BUFFER_BYTES)
    return gzip.open(buffered) if buffered.peek(2)[:2] == b"\x1f\x8b" else buffered


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
    def _check_consistency(self) -> Self:
        keys = {name for name, value in self if value and name not in ("format", "straight_apostrophes")}
        choices = [_BILINGUAL_KEYS[self.format]] if self.format in _BILINGUAL_KEYS else _MONOLINGUAL_KEYS
        if not any(needed <= keys <= needed | possible for needed, possible in choices):
            listed = ", or ".join(" and ".join(sorted(needed)) for needed, _ in choices)
            raise ValueError(f"the format {self.format} takes {listed}, not {' and '.join(sorted(keys)) or 'nothing'}")
        return self

    @property
    def files(self) -> list[str]:
        return [name for name in (self.file, self.source_file, self.target_file) if name is not None]


def read_pairs(files: Files, location: PairLocation) -> Iterator[tuple[str, str]]:
    """Yield sentence pairs, source first, in the order of the files.

    :raises UserError: a member is missing; a file has no text; the sides have different lengths
    """
    empty = True
    pairs_of = _bilingual if location.format in _BILINGUAL_KEYS else _sides
    for source, target in pairs_of(files, location):
        empty = False
        if location.straight_apostrophes:
            source, target = source.replace("’", "'"), target.replace("’", "'")
        yield source, target
    if empty:
        paths = ", ".join(str(files[name]) for name in location.files)
        raise UserError(f"{paths}: no text of the format {location.format}")


def _bilingual(files: Files, location: PairLocation) -> Iterator[tuple[str, str]]:
    for name, text in open_texts(files[str(location.file)], location.member):
        with errors_name(name):
            if location.languages is not None:
                yield from _translation_units(text, location.languages)
            elif location.columns is not None:
                source, target = (column - 1 for column in location.columns)
                for line in decode_stream(text, name):
                    fields = line.split("\t")
                    yield fields[source], fields[target]


def _sides(files: Files, location: PairLocation) -> Iterator[tuple[str, str]]:
    sides = ((location.source_file, location.source), (location.target_file, location.target))
    texts = [open_texts(files[str(location.file or file)], member) for file, member in sides]
    parse = _MONOLINGUAL[location.format]
    for members in zip(*texts, strict=True):
        names = [name for name, _ in members]
        stems = [_stem(name, member or "") for name, (_, member) in zip(names, sides, strict=True)]
        if None not in stems and stems[0] != stems[1]:
            raise UserError(f"{names[0]} stands beside {names[1]}: name the members one by one, in the same order")
        try:
            yield from zip(*(parse(text, name) for name, text in members), strict=True)
        except ValueError as error:
            raise UserError(f"sides of different length: {' and '.join(names)}") from error


def _stem(name: str, pattern: str) -> str | None:
    """Return what stands in the place of the ``*`` of a member's pattern; None if it has not exactly one."""
    prefix, star, suffix = pattern.removeprefix("./").partition("*")
    return name.removeprefix(prefix).removesuffix(suffix) if star and "*" not in suffix else None


def _segments(text: IO[bytes], name: str) -> Iterator[str]:
    """Yield the content of ``<seg>`` elements, stripped of spaces, with entities replaced.

    Many published files are not well-formed, so this is not a parser of XML.
    """
    text_of_segments, end, rest = " ".join(decode_stream(text, name)).rpartition("</seg>")
    for match in _SEGMENT.finditer(text_of_segments + end):
        # A line feed would make two lines of a sentence.
        yield _ENTITY.sub(lambda entity: html.unescape(entity[0]).replace("\n", " "), match[1].strip(" \t"))
    if unfinished := _SEGMENT_START.search(rest):
        raise UserError(f"{name}: its last <seg> has no end: {unfinished[0][:60]}")


def _tagged(text: IO[bytes], name: str) -> Iterator[str]:
    """Yield the sentences of IWSLT's ``train.tags.*``: titles and descriptions count, other tags do not."""
    for line in decode_stream(text, name):
        if not _DESCRIBING.search(line):
            yield _SPOKEN.sub("", line).strip(" \t")


def _translation_units(text: IO[bytes], languages: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a TMX file. The parser refuses entities that refer to other files."""
    ancestors: list[ElementTree.Element] = []
    for event, element in ElementTree.iterparse(text, ("start", "end")):
        if event == "start":
            ancestors.append(element)
            continue
        ancestors.pop()
        if element.tag.rpartition("}")[2] != "tu":
            continue
        segments = {
            (side.get(_LANGUAGE) or side.get("lang", "")).lower(): " ".join("".join(segment.itertext()).split("\n"))
            for side in element.iterfind(".//{*}tuv")
            for segment in side.iterfind(".//{*}seg")
        }
        source, target = (segments[language.lower()].strip() for language in languages)
        yield source, target
        for ancestor in ancestors:
            ancestor.clear()  # frees the units so far


# Lines as they are; <seg> elements (WMT's .sgm, IWSLT's .xml); IWSLT's train.tags.*
_MONOLINGUAL: dict[str, Callable[[IO[bytes], str], Iterator[str]]] = {
    "lines": decode_stream,
    "segments": _segments,
    "tagged": _tagged,
}
