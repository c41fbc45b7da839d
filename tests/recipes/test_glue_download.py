"""Downloads from a server of our own, archives, and how MRPC is divided."""

import dataclasses
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path

import pytest
from glue_tables import write_published_mrpc

from ode_transformer.errors import UserError
from ode_transformer.recipes.glue import tables_of
from ode_transformer.recipes.glue_download import divide_mrpc, download
from ode_transformer.recipes.glue_tasks import TASKS, GlueTask, read_table

TABLES = ["RTE/train.tsv", "RTE/dev.tsv", "RTE/test.tsv"]


def archive(*names: str) -> bytes:
    """A zip file whose files say what they are called."""
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as members:
        for name in names:
            members.writestr(name, name * 20)
    return made.getvalue()


class Server:
    """Answers every request with ``answer``, of which it promises ``missing`` bytes more than it sends."""

    def __init__(self) -> None:
        self.answer, self.missing, self.requests = b"", 0, 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                server.requests += 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(server.answer) + server.missing))
                self.end_headers()
                self.wfile.write(server.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def task(self) -> GlueTask:
        return dataclasses.replace(TASKS["RTE"], urls=(f"http://127.0.0.1:{self.http.server_port}/RTE.zip",))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_an_archive_gives_its_tables_and_nothing_else(tmp_path: Path, server: Server) -> None:
    server.answer = archive(*TABLES, "RTE/original/dev.tsv", "../train.tsv", "RTE/x.tsv")
    download(server.task, tmp_path / "RTE")
    assert sorted(path.name for path in (tmp_path / "RTE").iterdir()) == ["RTE.zip", "dev.tsv", "test.tsv", "train.tsv"]
    assert (tmp_path / "RTE" / "dev.tsv").read_text() == "RTE/dev.tsv" * 20


def flipped(data: bytes) -> bytes:
    """The same archive with what it compresses spoilt."""
    start = data.index(TABLES[0].encode()) + len(TABLES[0])
    return data[:start] + bytes([data[start] ^ 255]) * 8 + data[start + 8 :]


@pytest.mark.parametrize(
    ("answer", "missing", "message"),
    [
        (archive(*TABLES), 7, r"RTE.zip: [\d,]+ bytes came of"),
        (archive(*TABLES)[:-30], 0, "RTE.zip: .*zip"),
        (flipped(archive(*TABLES)), 0, "RTE.zip: .*; --raw takes a folder"),
        (archive(*TABLES[:2]), 0, "RTE.zip: no test.tsv in it"),
    ],
    ids=["cut off", "no archive", "spoilt", "a table too few"],
)
def test_a_failed_download_is_one_line_and_repeated(tmp_path: Path, server: Server, answer, missing, message) -> None:
    server.answer, server.missing = answer, missing
    with pytest.raises(UserError, match=message):
        tables_of(server.task, None, tmp_path)
    assert not (tmp_path / "RTE" / "train.tsv").exists()
    server.answer, server.missing = archive(*TABLES), 0
    for _ in range(2):
        assert (tables_of(server.task, None, tmp_path) / "train.tsv").exists()
    assert server.requests == 2  # not again when it is there
    (tmp_path / "RTE" / "train.tsv").unlink()
    assert (tables_of(server.task, None, tmp_path) / "train.tsv").exists()


def test_nobody_answers(tmp_path: Path) -> None:
    task = dataclasses.replace(TASKS["RTE"], urls=("http://127.0.0.1:9/RTE.zip",))
    with pytest.raises(UserError, match=r"RTE.zip: .*refused.*; --raw takes a folder"):
        download(task, tmp_path)


def test_mrpc_is_divided_by_its_development_pairs(tmp_path: Path) -> None:
    published = write_published_mrpc(tmp_path / "published")
    divide_mrpc(published, tmp_path)
    task = TASKS["MRPC"]
    texts = {split: [example.texts[0] for example in read_table(task, tmp_path, split)[0]] for split in task.tables}
    assert texts == {
        "train": ["one 0", "one 1", "one 3", "one 5"],
        "valid": ["one 2", "one 4"],
        "test": ["one 0", "one 1"],
    }
    assert [example.index for example in read_table(task, tmp_path, "test")[0]] == ["0", "1"]


@pytest.mark.parametrize(
    ("listed", "message"), [("20\t21\n20\t99\n", "pair 20 99 is not in msr_paraphrase_train.txt"), (None, "missing")]
)
def test_a_wrong_list_of_development_pairs(tmp_path: Path, listed: str | None, message: str) -> None:
    path = write_published_mrpc(tmp_path / "published") / "mrpc_dev_ids.tsv"
    path.unlink() if listed is None else path.write_text(listed)
    with pytest.raises(UserError, match=f"mrpc_dev_ids.tsv: {message}"):
        divide_mrpc(tmp_path / "published", tmp_path)
    assert not list(tmp_path.glob("*.tsv"))
