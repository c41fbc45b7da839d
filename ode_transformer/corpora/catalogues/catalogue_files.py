"""Messages in the gettext catalogues of a wheel, read from inside the archive: nothing is installed or run.

Compiled catalogues (``.mo``) are read by Python's own ``gettext``. Where there is only the text form
(``.po``), the small parser below reads it and leaves out fuzzy, obsolete and plural entries.

A message identifier is usually the English text. Some packages use symbols instead (``label_save``); the
English then stands in a comment of the text form (``#. Default: "Save"``) or in an English catalogue beside
the translated one.
"""

from __future__ import annotations

import gettext
import io
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message as Metadata
from email.parser import HeaderParser
from pathlib import Path

from ode_transformer.corpora.parallel_text import CorpusError

ENGLISH = ("en", "en_US", "en_GB")
# Languages whose national forms differ too much for one to stand in for another.
NO_STAND_IN = frozenset({"pt", "zh", "sr"})
# The same written language under two habits of naming.
SYNONYMS = {"zh_cn": "zh_hans", "zh_hans_cn": "zh_hans", "zh_tw": "zh_hant", "zh_hant_tw": "zh_hant"}
# What reading a damaged archive, catalogue or metadata file can raise.
BROKEN = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)

_CATALOGUE = re.compile(r"(?P<root>(?:.*/)?)(?P<language>[^/]+)/LC_MESSAGES/(?P<name>[^/]+)\.(?P<form>mo|po)")
_LANGUAGE = re.compile(r"[a-z]{2,3}([_@-]\w+)*", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_DEFAULT = re.compile(rf"#\. Default: ({_QUOTED.pattern}(?:\n#\. *{_QUOTED.pattern})*)")
_FIELD = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)?\s*"(.*)"\s*')


@dataclass(frozen=True)
class Message:
    """A text and its translation, as the programmers and translators wrote them."""

    source: str
    target: str


@dataclass(frozen=True)
class Wheel:
    """A wheel's name, version and licence, the languages it is translated into, and its messages in one."""

    package: str
    version: str
    licence: str
    languages: frozenset[str]
    messages: tuple[Message, ...]


def read_wheel(path: Path, target: str) -> Wheel:
    """Messages of the wheel ``path`` in the language ``target`` (none, if the wheel lacks it).

    :raises CorpusError: the wheel or one of its catalogues is broken; the message names both.
    """
    member = ""
    try:
        with zipfile.ZipFile(path) as archive:
            files = catalogue_files(archive.namelist())
            messages: list[Message] = []
            language = choose_language(files, target)
            for member in sorted(files.get(language or "", ())):
                messages += read_catalogue(archive, files, member)
            member = "METADATA"
            name, version, licence = read_metadata(archive)
    except BROKEN as error:
        raise CorpusError(f"{path}: broken wheel: {member and member + ': '}{error}") from error
    return Wheel(name, version, licence, frozenset(files), tuple(messages))


def catalogue_files(names: list[str]) -> dict[str, dict[str, set[str]]]:
    """Catalogues by language, then by path without the ending.

    :returns: for every path the forms that are there, ``mo``, ``po`` or both.
    """
    files: dict[str, dict[str, set[str]]] = {}
    for name in names:
        match = _CATALOGUE.fullmatch(name)
        if match and _LANGUAGE.fullmatch(match["language"]):
            stem = name[: -len(match["form"]) - 1]
            files.setdefault(match["language"], {}).setdefault(stem, set()).add(match["form"])
    return files


def choose_language(available: dict[str, dict[str, set[str]]], target: str) -> str | None:
    """The name under which a package has ``target``: ``de`` may be called ``de_DE``, ``pt-br`` as ``pt_BR``.

    A regional form stands in for a bare code if it is the home country's (``de_DE``) or the only one.
    """

    def plain(code: str) -> str:
        code = code.replace("-", "_").lower()
        return SYNONYMS.get(code, code)

    wanted = plain(target)
    forms = sorted(code for code in available if plain(code).split("_")[0] == wanted)
    regional = [code for code in forms if re.fullmatch(r"[a-z]+_[a-z]{2}", plain(code))]
    for code in sorted(available):
        if plain(code) == wanted:
            return code
    for code in regional:
        if plain(code) == f"{wanted}_{wanted}":
            return code
    return regional[0] if len(regional) == 1 and wanted not in NO_STAND_IN else None


def read_catalogue(archive: zipfile.ZipFile, files: dict[str, dict[str, set[str]]], stem: str) -> list[Message]:
    """Messages of one catalogue, with English in place of symbolic identifiers where the package has it."""
    language, forms = next((code, stems[stem]) for code, stems in files.items() if stem in stems)
    text = archive.read(f"{stem}.po").decode("utf-8") if "po" in forms else ""
    pairs = list(read_mo(archive.read(f"{stem}.mo")) if "mo" in forms else read_po(text))
    english: dict[str, str] = {}
    for code in reversed(ENGLISH):
        twin = stem.replace(f"/{language}/LC_MESSAGES/", f"/{code}/LC_MESSAGES/")
        if "mo" in files.get(code, {}).get(twin, ()):
            english |= {key: value for key, value in read_mo(archive.read(f"{twin}.mo")) if value}
    # An English catalogue may also respell real English ("colour"): it only speaks for symbols.
    english = {key: value for key, value in english.items() if not re.search(r"\s", key)}
    english |= dict(default_texts(text))
    return [Message(english.get(key, key), value) for key, value in pairs if key and value]


def read_mo(data: bytes) -> Iterator[tuple[str, str]]:
    """Identifier (context removed) and translation of every message of a compiled catalogue.

    Of a message with plural forms comes the singular: ``gettext`` does not keep the English plural.
    """
    catalogue = gettext.GNUTranslations(io.BytesIO(data))
    keys = {key[0] if isinstance(key, tuple) else key: isinstance(key, tuple) for key in vars(catalogue)["_catalog"]}
    for key, plural in keys.items():
        if key:
            text = catalogue.ngettext(key, key, 1) if plural else catalogue.gettext(key)
            yield key.rpartition("\x04")[2], text


def read_po(text: str) -> Iterator[tuple[str, str]]:
    """Identifier and translation of the finished messages without plural forms in a catalogue's text."""
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        fields: dict[str, str] = {}
        field = ""
        fuzzy = False
        for line in block.split("\n"):
            fuzzy |= line.startswith("#,") and "fuzzy" in line
            if match := _FIELD.fullmatch(line):
                field = match[1] or field
                fields[field] = fields.get(field, "") + unescape(match[2])
        if not fuzzy and fields.get("msgid") and "msgid_plural" not in fields:
            yield fields["msgid"], fields.get("msgstr", "")


def default_texts(text: str) -> Iterator[tuple[str, str]]:
    """Identifier and English of the messages that carry a ``Default`` comment in a catalogue's text."""
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")) if "#. Default:" in text else ():
        if match := _DEFAULT.search(block):
            for key, _ in read_po(block):
                yield key, "".join(unescape(piece) for piece in _QUOTED.findall(match[1]))


def unescape(text: str) -> str:
    r"""Text between the quotes of a catalogue's line, with ``\n``, ``\"`` and the like resolved."""
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def read_metadata(archive: zipfile.ZipFile) -> tuple[str, str, str]:
    """Name, version and licence that the wheel states."""
    names = [n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)]
    if not names:
        raise LookupError("no such file")
    metadata = HeaderParser().parsestr(archive.read(names[0]).decode("utf-8"))
    return str(metadata["Name"]), str(metadata["Version"]), licence_of(metadata)


def licence_of(metadata: Metadata) -> str:
    """The licence in one short line: the SPDX expression, else the classifiers, else the free-text field."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [str(c) for c in metadata.get_all("Classifier", []) if str(c).startswith("License ::")]
    if classifiers:
        return ", ".join(c.rpartition(" :: ")[2] for c in classifiers)
    return (str(metadata["License"] or "").strip().splitlines() or ["not stated"])[0]


def count_languages(wheels: list[Wheel]) -> Counter[str]:
    """Number of packages that have catalogues in each language."""
    return Counter(language for wheel in wheels for language in wheel.languages)
