"""Messages in the gettext catalogues of a wheel, read inside the archive: nothing is installed or run.

Compiled catalogues (``.mo``) are read by Python's ``gettext``, others (``.po``) by polib.

A message's identifier is usually the English text. Some packages use symbols instead (``label_save``); the English is
then in a comment of the ``.po`` file (``#. Default: "Save"``) or in an English catalogue beside the translated one.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from dataclasses import dataclass
from email.message import Message as Metadata
from email.parser import HeaderParser
from pathlib import Path

from ode_transformer.corpora.catalogues.message_files import (
    CATALOGUE_ERRORS,
    MAX_CATALOGUE_BYTES,
    default_text,
    read_mo,
    read_po,
)
from ode_transformer.corpora.raw_archives import read_zip_member
from ode_transformer.support.errors import UserError, one_line

ENGLISH = ("en", "en_US", "en_GB")
# Languages whose regional forms differ too much to replace each other.
DISTINCT_REGIONS = frozenset({"pt", "zh", "sr"})
# Two names of the same written language.
SYNONYMS = {"zh_cn": "zh_hans", "zh_hans_cn": "zh_hans", "zh_tw": "zh_hant", "zh_hant_tw": "zh_hant"}
MAX_CATALOGUES = 2000  # of one language in a wheel

_CATALOGUE = re.compile(r"(?P<root>(?:.*/)?)(?P<language>[^/]+)/LC_MESSAGES/(?P<name>[^/]+)\.(?P<form>mo|po)")
_LANGUAGE = re.compile(r"[a-z]{2,3}([_@-]\w+)*", re.IGNORECASE)


@dataclass(frozen=True)
class Message:
    """Text and translation as programmers and translators wrote them."""

    source: str
    target: str


@dataclass(frozen=True)
class Wheel:
    """Name, version and licence of a wheel, the languages of its catalogues, and its messages in one language."""

    package: str
    version: str
    licence: str
    languages: frozenset[str]
    messages: tuple[Message, ...]


def read_wheel(path: Path, target: str) -> Wheel:
    """Read the messages of a wheel in a language; there are none if the wheel lacks it.

    :param target: language code
    :raises UserError: the wheel or one of its catalogues is broken; the message names both
    """
    member = ""
    try:
        with zipfile.ZipFile(path) as archive:
            files = catalogue_files(archive.namelist())
            messages: list[Message] = []
            catalogues = sorted(files.get(choose_language(files, target) or "", ()))
            if len(catalogues) > MAX_CATALOGUES:
                raise ValueError(f"{len(catalogues):,} catalogues of one language, more than {MAX_CATALOGUES:,}")
            for member in catalogues:
                messages += read_catalogue(archive, files, member)
            member = "METADATA"
            name, version, licence = read_metadata(archive)
    except CATALOGUE_ERRORS as error:
        raise UserError(f"{path}: broken wheel: {member and member + ': '}{one_line(error)}") from error
    return Wheel(name, version, licence, frozenset(files), tuple(messages))


def catalogue_files(names: list[str]) -> dict[str, dict[str, set[str]]]:
    """Return the catalogues among the members of a wheel.

    :returns: for each language the paths without suffix, and for each path its forms: ``mo``, ``po`` or both
    """
    files: dict[str, dict[str, set[str]]] = {}
    for name in names:
        match = _CATALOGUE.fullmatch(name)
        if match and _LANGUAGE.fullmatch(match["language"]):
            stem = name[: -len(match["form"]) - 1]
            files.setdefault(match["language"], {}).setdefault(stem, set()).add(match["form"])
    return files


def choose_language(available: dict[str, dict[str, set[str]]], target: str) -> str | None:
    """Return the name under which a package has a language: ``de`` may be called ``de_DE``, ``pt-br`` ``pt_BR``.

    A regional form replaces a bare code if it is the home country's (``de_DE``) or the only one.
    """

    def canonical(code: str) -> str:
        code = code.replace("-", "_").lower()
        return SYNONYMS.get(code, code)

    language = canonical(target)
    forms = sorted(code for code in available if canonical(code).split("_")[0] == language)
    regional = [code for code in forms if re.fullmatch(r"[a-z]+_[a-z]{2}", canonical(code))]
    for code in sorted(available):
        if canonical(code) == language:
            return code
    for code in regional:
        if canonical(code) == f"{language}_{language}":
            return code
    return regional[0] if len(regional) == 1 and language not in DISTINCT_REGIONS else None


def read_catalogue(archive: zipfile.ZipFile, files: dict[str, dict[str, set[str]]], stem: str) -> list[Message]:
    """Return the messages of a catalogue, with the English text for symbolic identifiers if the package has it.

    :param files: from ``catalogue_files``
    :param stem: path of the catalogue without suffix
    """
    language, forms = next((code, stems[stem]) for code, stems in files.items() if stem in stems)
    text = read_zip_member(archive, f"{stem}.po", MAX_CATALOGUE_BYTES).decode("utf-8") if "po" in forms else ""
    entries = read_po(text) if "mo" not in forms or "#. Default:" in text else []
    if "mo" in forms:
        pairs = list(read_mo(read_zip_member(archive, f"{stem}.mo", MAX_CATALOGUE_BYTES)))
    else:
        pairs = [(entry.msgid, entry.msgstr) for entry in entries]
    english: dict[str, str] = {}
    for code in reversed(ENGLISH):
        english_stem = stem.replace(f"/{language}/LC_MESSAGES/", f"/{code}/LC_MESSAGES/")
        if "mo" in files.get(code, {}).get(english_stem, ()):
            data = read_zip_member(archive, f"{english_stem}.mo", MAX_CATALOGUE_BYTES)
            english |= {key: value for key, value in read_mo(data) if value}
    # An English catalogue may also respell English text ("colour"): only its symbols are replaced.
    english = {key: value for key, value in english.items() if not re.search(r"\s", key)}
    english |= {entry.msgid: default for entry in entries if (default := default_text(entry)) is not None}
    return [Message(english.get(key, key), value) for key, value in pairs if key and value]


def read_metadata(archive: zipfile.ZipFile) -> tuple[str, str, str]:
    """Return name, version and licence that a wheel states.

    :raises LookupError: the wheel has no metadata
    """
    names = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
    if not names:
        raise LookupError("no such file")
    text = read_zip_member(archive, names[0], MAX_CATALOGUE_BYTES).decode("utf-8")
    metadata = HeaderParser().parsestr(text)
    if absent := [field for field in ("Name", "Version") if not metadata[field]]:
        raise LookupError(f"no {absent[0]}")
    return str(metadata["Name"]), str(metadata["Version"]), licence_of(metadata)


def licence_of(metadata: Metadata) -> str:
    """Return the licence in one line: the SPDX expression, else the classifiers, else the free-text field."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [str(c) for c in metadata.get_all("Classifier", []) if str(c).startswith("License ::")]
    if classifiers:
        return ", ".join(c.rpartition(" :: ")[2] for c in classifiers)
    return (str(metadata["License"] or "").strip().splitlines() or ["not stated"])[0]


def count_languages(wheels: list[Wheel]) -> Counter[str]:
    """Return the number of packages that have catalogues in each language."""
    return Counter(language for wheel in wheels for language in wheel.languages)
