"""Messages of one gettext catalogue, compiled (``.mo``) or as text (``.po``).

Catalogues come from the network: sizes are bounded before a parser sees them, so that a crafted file can neither fill
memory nor keep the parser busy for hours.
"""

from __future__ import annotations

import gettext
import io
import re
import struct
import tempfile
from collections.abc import Iterator

import polib

from ode_transformer.corpora.raw_archives import ARCHIVE_ERRORS

# What reading a damaged or crafted archive, catalogue or metadata file can raise.
CATALOGUE_ERRORS = (*ARCHIVE_ERRORS, MemoryError, SyntaxError, struct.error)

MAX_CATALOGUE_BYTES = 1 << 24
MAX_ENTRY_LINES = 2000  # polib's time is quadratic in the lines of an entry

_MAGIC_NUMBERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
_ENTRY_START = re.compile(r"\s*(#~\s*)?msgid[\s\"]")
_FIELD_START = re.compile(r"\s*msg(ctxt|id|str)")
_FLAG_WITHOUT_SPACE = re.compile(r"^#,(?=\S)", re.MULTILINE)
_COMMENT_WITHOUT_SPACE = re.compile(r"^#(?=[^\s,.:|~#]|[.:|]\S|~[^\s|])", re.MULTILINE)
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_DEFAULT = re.compile(rf"Default: ({_QUOTED.pattern}(?:\n *{_QUOTED.pattern})*)")


def read_mo(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield identifier, without its context, and translation of every message in a compiled catalogue.

    For a message with plural forms, the translation is the singular, because a catalogue states no English plural.

    :raises CATALOGUE_ERRORS: the catalogue is damaged
    """
    identifiers = _identifiers(data)
    catalogue = gettext.GNUTranslations(io.BytesIO(data))
    charset = catalogue.charset() or "ascii"
    has_plural: dict[str, bool] = {}
    for identifier in identifiers:
        singular, separator, _ = identifier.partition(b"\0")
        has_plural[singular.decode(charset)] = bool(separator)
    for key, plural in has_plural.items():
        if key:
            text = catalogue.ngettext(key, key, 1) if plural else catalogue.gettext(key)
            yield key.rpartition("\x04")[2], text


def _identifiers(data: bytes) -> list[bytes]:
    """Return the identifiers of a compiled catalogue.

    :raises ValueError: strings lie outside the file or overlap
    :raises struct.error: a table lies outside the file
    """
    order = _MAGIC_NUMBERS.get(data[:4])
    if order is None:
        raise ValueError("bad magic number")
    count, *tables = struct.unpack_from(f"{order}3I", data, 8)
    if 16 * count > len(data):
        raise ValueError(f"{count:,} messages in {len(data):,} bytes")
    strings = [struct.unpack_from(f"{order}{2 * count}I", data, table) for table in tables]
    total = 0
    for lengths_and_offsets in strings:
        for length, offset in zip(lengths_and_offsets[::2], lengths_and_offsets[1::2], strict=True):
            total += length
            if offset + length > len(data) or total > len(data):
                raise ValueError("a message is cut off or overlaps another one")
    identifiers = strings[0]
    return [data[offset : offset + length] for length, offset in zip(identifiers[::2], identifiers[1::2], strict=True)]


def read_po(text: str) -> list[polib.POEntry]:
    """Return the finished messages without plural forms in a catalogue's text; fuzzy and obsolete ones are left out.

    :raises ValueError: a text is not in quotation marks, or a message has more than ``MAX_ENTRY_LINES`` lines
    :raises OSError: a syntax error
    """
    entry_lines = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if _FIELD_START.match(line) and line.count('"') < 2:  # polib would cut off its first and last character
            raise ValueError(f"line {number} has no text in quotation marks")
        entry_lines = 0 if _ENTRY_START.match(line) else entry_lines + 1
        if entry_lines > MAX_ENTRY_LINES:
            raise ValueError(f"a message has more than {MAX_ENTRY_LINES:,} lines")
    # gettext accepts comments without a space after their mark, polib does not.
    text = _COMMENT_WITHOUT_SPACE.sub("# ", _FLAG_WITHOUT_SPACE.sub("#, ", text))
    # polib would take a short text for the name of a file, and split a long one at characters other than line feeds.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".po") as file:
        file.write(text)
        file.flush()
        try:
            entries = polib.pofile(file.name, encoding="utf-8")
        except OSError as error:
            raise OSError(str(error).replace(f"{file.name} ", "")) from error
    return [entry for entry in entries if not (entry.fuzzy or entry.obsolete or entry.msgid_plural)]


def default_text(entry: polib.POEntry) -> str | None:
    """Return the English text in a comment ``#. Default: "..."``, which explains a symbolic identifier."""
    match = _DEFAULT.search(entry.comment)
    return match and "".join(polib.unescape(line) for line in _QUOTED.findall(match[1]))
