"""Downloads from a server of our own, archives, and how MRPC is divided."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from file_server import FileServer, serving
from glue_tables import write_published_mrpc

from ode_transformer.corpora import download as corpora_download
from ode_transformer.glue import download as glue_download
from ode_transformer.glue.download import divide_mrpc, download
from ode_transformer.glue.preparation import tables_folder
from ode_transformer.glue.tasks import TASKS, read_table
from ode_transformer.support.errors import UserError

TABLES = ["RTE/train.tsv", "RTE/dev.tsv", "RTE/test.tsv"]


def archive(*names: str) -> bytes:
    """Return a zip file whose files contain their own names."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as members:
        for name in names:
            members.writestr(name, name * 20)
    return buffer.getvalue()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that the list of sources names for RTE's archive."""
    with serving() as server:
        catalogue = tmp_path / "sources.yaml"
        catalogue.write_text(f"glue_rte: {{file: RTE.zip, urls: ['{server.url('RTE.zip')}'], licence: free}}\n")
        monkeypatch.setattr(glue_download, "SOURCES_FILE", catalogue)
        monkeypatch.setattr(corpora_download, "RETRY_PAUSES", ())
        yield server


def test_an_archive_gives_its_tables_and_nothing_else(tmp_path: Path, server: FileServer) -> None:
    server.files["RTE.zip"] = archive(*TABLES, "RTE/original/dev.tsv", "../train.tsv", "RTE/x.tsv")
    download(TASKS["RTE"], tmp_path / "RTE")
    files = {path.name for path in (tmp_path / "RTE").iterdir()}
    assert files == {".downloads", "RTE.zip", "dev.tsv", "test.tsv", "train.tsv"}
    assert (tmp_path / "RTE" / "dev.tsv").read_text() == "RTE/dev.tsv" * 20


def test_a_failed_download_is_one_line_and_repeated(tmp_path: Path, server: FileServer) -> None:
    server.files["RTE.zip"], server.cuts = archive(*TABLES), [100]
    with pytest.raises(UserError, match=r"RTE.zip: 100 bytes came of"):
        tables_folder(TASKS["RTE"], None, tmp_path)
    assert not (tmp_path / "RTE" / "train.tsv").exists()
    for _ in range(2):
        assert (tables_folder(TASKS["RTE"], None, tmp_path) / "train.tsv").exists()
    assert len(server.fetched) == 2  # not again when it is there
    (tmp_path / "RTE" / "train.tsv").unlink()
    assert (tables_folder(TASKS["RTE"], None, tmp_path) / "train.tsv").exists()
    assert len(server.fetched) == 2  # the archive is still there


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
