"""Tables as CSV and Markdown text."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_RULES = {"l": "---", "r": "---:"}


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV; the first row holds the column titles."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], alignment: str | None = None) -> str:
    """Return a Markdown table without a final line feed; bars in entries are escaped.

    :param alignment: ``l`` (left) or ``r`` (right) for each column; by default the first is left, the others right
    """
    alignment = "l" + "r" * (len(titles) - 1) if alignment is None else alignment
    first, *lines = [_line(row) for row in (titles, *rows)]
    return "\n".join([first, f"|{'|'.join(_RULES[letter] for letter in alignment)}|", *lines])


def _line(entries: Sequence[str]) -> str:
    return "| " + " | ".join(re.sub(r"(?<!\\)[|]", r"\\|", entry) for entry in entries) + " |"
