"""Tables as text."""

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV, the titles of the columns being the first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown, the first column to the left, the others to the right."""
    head, *lines = (f"| {' | '.join(row)} |" for row in [heads, *rows])
    return "\n".join([head, "|---" + "|---:" * (len(heads) - 1) + "|", *lines])
