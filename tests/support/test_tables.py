"""Tables as text."""

import csv
import io

from ode_transformer.support.tables import csv_text


def test_csv_text() -> None:
    rows = [["name", "score"], ["a, b", 1.5], ['"c"', ""]]
    assert csv_text(rows) == 'name,score\n"a, b",1.5\n"""c""",\n'
    assert list(csv.reader(io.StringIO(csv_text(rows)))) == [[str(cell) for cell in row] for row in rows]
