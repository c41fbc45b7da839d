"""Messages in the gettext catalogues of a wheel, read inside the archive: nothing is installed or run.

Compiled catalogues (``.mo``) are read by Python's ``gettext``, others (``.po``) by polib.

A message's identifier is usually the English text. Some packages use symbols instead (``label_save``); the English is
then in a comment of the ``.po`` file (``#. Default: "Save"``) or in an English catalogue beside the translated one.
"""

import gettext
import io
import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import polib

from ode_transformer.lab.corpora.wheel_corpus import Pair

_FLAG_WITHOUT_SPACE = re.compile(r"^#,(?=\S)", re.MULTILINE)
_COMMENT_WITHOUT_SPACE = re.compile(r"^#(?=[^\s,.:|~#]|[.:|]\S|~[^\s|])", re.MULTILINE)
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_DEFAULT = re.compile(rf"Default: ({_QUOTED.pattern}(?:\n *{_QUOTED.pattern})*)")

ENGLISH = ("en", "en_US", "en_GB")
# Languages whose regional forms differ too much to replace each other.
DISTINCT_REGIONS = frozenset({"pt", "zh", "sr"})
# Two names of the same written language.
SYNONYMS = {"zh_cn": "zh_hans", "zh_hans_cn": "zh_hans", "zh_tw": "zh_hant", "zh_hant_tw": "zh_hant"}

_CATALOGUE = re.compile(r"(?P<root>(?:.*/)?)(?P<language>[^/]+)/LC_MESSAGES/(?P<name>[^/]+)\.(?P<form>mo|po)")
_LANGUAGE = re.compile(r"[a-z]{2,3}([_@-]\w+)*", re.IGNORECASE)

# For each language the paths without suffix, and for each path its forms: mo, po or both
Catalogues = dict[str, dict[str, set[str]]]


@dataclass(frozen=True)
class Wheel:
    """Name, version and licence of a wheel, the languages of its catalogues, and its messages in one language."""

    package: str
    version: str
    licence: str
    languages: frozenset[str]
    messages: tuple[Pair, ...]


def read_wheel(path: Path, target: str) -> Wheel:
    """Read the messages of a wheel in a language; there are none if the wheel lacks it."""
    with zipfile.ZipFile(path) as archive:
        files = catalogue_files(archive.namelist())
        language = choose_language(files, target) or ""
        stems = sorted(files.get(language, ()))
        messages = [message for stem in stems for message in read_catalogue(archive, files, language, stem)]
        name = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        metadata = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
    package, version = str(metadata["Name"]), str(metadata["Version"])
    return Wheel(package, version, licence_of(metadata), frozenset(files), tuple(messages))


def catalogue_files(names: list[str]) -> Catalogues:
    """Return the catalogues among the members of a wheel."""
    files: Catalogues = {}
    for name in names:
        match = _CATALOGUE.fullmatch(name)
        if match and _LANGUAGE.fullmatch(match["language"]):
            stem = name[: -len(match["form"]) - 1]
            files.setdefault(match["language"], {}).setdefault(stem, set()).add(match["form"])
    return files


def choose_language(available: Catalogues, target: str) -> str | None:
    """Return the name under which a package has a language: ``de`` may be called ``de_DE``, ``pt-br`` ``pt_BR``.

    A regional form replaces a bare code if it is the home country's (``de_DE``) or the only one.
    """

    def canonical(code: str) -> str:
        code = code.replace("-", "_").lower()
        return SYNONYMS.get(code, code)

    language = canonical(target)
    exact = [code for code in sorted(available) if canonical(code) == language]
    of_country = re.compile(rf"{re.escape(language)}_[a-z]{{2}}")
    regional = [code for code in sorted(available) if of_country.fullmatch(canonical(code))]
    home = [code for code in regional if canonical(code) == f"{language}_{language}"]
    only = regional if len(regional) == 1 and language not in DISTINCT_REGIONS else []
    return next(iter([*exact, *home, *only]), None)


def read_catalogue(archive: zipfile.ZipFile, files: Catalogues, language: str, stem: str) -> list[Pair]:
    """Return the messages of a catalogue, with the English text for symbolic identifiers if the package has it."""
    forms = files[language][stem]
    text = archive.read(f"{stem}.po").decode("utf-8") if "po" in forms else ""
    entries = read_po(text) if "mo" not in forms or "#. Default:" in text else []
    if "mo" in forms:
        pairs = list(read_mo(archive.read(f"{stem}.mo")))
    else:
        pairs = [(entry.msgid, entry.msgstr) for entry in entries]
    english: dict[str, str] = {}
    for code in reversed(ENGLISH):
        english_stem = stem.replace(f"/{language}/LC_MESSAGES/", f"/{code}/LC_MESSAGES/")
        if "mo" in files.get(code, {}).get(english_stem, ()):
            data = archive.read(f"{english_stem}.mo")
            english |= {key: value for key, value in read_mo(data) if value}
    # An English catalogue may also respell English text ("colour"): only its symbols are replaced.
    english = {key: value for key, value in english.items() if not re.search(r"\s", key)}
    english |= {entry.msgid: default for entry in entries if (default := default_text(entry)) is not None}
    return [Pair(english.get(key, key), value) for key, value in pairs if key and value]


def licence_of(metadata: Message) -> str:
    """Return the licence in one line: the SPDX expression, else the classifiers, else the free-text field."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [str(c) for c in metadata.get_all("Classifier", []) if str(c).startswith("License ::")]
    if classifiers:
        return ", ".join(c.rpartition(" :: ")[2] for c in classifiers)
    return (str(metadata["License"] or "").strip().splitlines() or ["not stated"])[0]


def read_mo(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield identifier, without its context, and translation of every message in a compiled catalogue.

    For a message with plural forms, the translation is the singular, because a catalogue states no English plural.
    """
    catalogue = gettext.GNUTranslations(io.BytesIO(data))
    singular = catalogue.plural(1)  # type: ignore[attr-defined]
    messages: dict[str | tuple[str, int], str] = catalogue._catalog  # type: ignore[attr-defined]
    for key, text in messages.items():
        identifier, form = (key, singular) if isinstance(key, str) else key
        if identifier and form == singular:
            yield identifier.rpartition("\x04")[2], text


def read_po(text: str) -> list[polib.POEntry]:
    """Return the finished messages without plural forms in a catalogue's text; fuzzy and obsolete ones are left out."""
    # gettext accepts comments without a space after their mark, polib does not.
    text = _COMMENT_WITHOUT_SPACE.sub("# ", _FLAG_WITHOUT_SPACE.sub("#, ", text))
    # polib would take a short text for the name of a file, and split a long one at characters other than line feeds.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".po") as file:
        file.write(text)
        file.flush()
        entries = polib.pofile(file.name, encoding="utf-8")
    return [entry for entry in entries if not (entry.fuzzy or entry.obsolete or entry.msgid_plural)]


def default_text(entry: polib.POEntry) -> str | None:
    """Return the English text in a comment ``#. Default: "..."``, which explains a symbolic identifier."""
    match = _DEFAULT.search(entry.comment)
    return match and "".join(polib.unescape(line) for line in _QUOTED.findall(match[1]))
