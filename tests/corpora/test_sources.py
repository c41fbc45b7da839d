"""The source list: its content and the errors for mistakes in it."""

from pathlib import Path

import pytest

from ode_transformer.corpora.sources import read_sources
from ode_transformer.glue.tasks import TASKS
from ode_transformer.support.errors import UserError


def test_the_source_list_has_the_downloads_of_glue() -> None:
    assert {name for task in TASKS.values() for name in task.sources} == {
        name for name in read_sources() if name.startswith("glue_")
    }


def test_only_these_have_no_published_checksum() -> None:
    sources = read_sources()
    assert {name for name, source in sources.items() if source.urls and not source.checksum} == {
        "conll14_test",
        "iwslt14_de_en",
        *(name for name in sources if name.startswith("stanford_cs_en_")),
        *(name for name in sources if name.startswith("iwslt15_") and name.endswith("_github")),  # its members have
        "news_commentary_v11",
    }


def test_each_file_is_on_two_hosts_or_the_list_says_why_not() -> None:
    sources = read_sources()
    for name, source in sources.items():
        urls = [url for entry in (source, *(sources[copy.source] for copy in source.copies)) for url in entry.urls]
        hosts = {url.split("/")[2] for url in urls}
        assert source.obtain or source.single_host or len(hosts) > 1, name


def test_files_checksums_and_copies_go_together() -> None:
    sources = read_sources()
    assert len({source.file for source in sources.values()}) == len(sources)
    assert {copy.source for source in sources.values() for copy in source.copies} <= set(sources)
    assert all(bool(source.checksum) == bool(source.checksum_from) for source in sources.values())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{file: ../a, urls: ['http://e.org/a'], licence: free}", "a.file: String should match"),
        ("{file: a, licence: free, urls: ['ftp://example.org/a']}", "a.urls.0: String should match"),
        ("{file: a, licence: free}", "has to have either urls or obtain"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(f"a: {entry}\n")
    with pytest.raises(UserError) as error:
        read_sources(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
