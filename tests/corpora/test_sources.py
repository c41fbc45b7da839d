"""The source list: its content, its table in the docs, and the errors for mistakes in it."""

import fnmatch
import re
from pathlib import Path

import pytest

from ode_transformer.corpora.sources import SOURCES_FILE, read_sources, sources_table
from ode_transformer.glue.tasks import TASKS
from ode_transformer.support.errors import UserError

ENTRY = "licence: free, urls: ['https://example.org/a']"
SHA256 = "0" * 64


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


PAGE = (SOURCES_FILE.parents[1] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_page_on_data_ends_with_the_source_list() -> None:
    assert PAGE.endswith(f"\n\n{sources_table(read_sources())}")


def test_the_page_on_data_names_every_source() -> None:
    """Also above the table, and nothing else."""
    named_patterns = set(re.findall(r"\| `([a-z0-9_*]+)` \|", PAGE.removesuffix(sources_table(read_sources()))))
    names = set(read_sources())
    matched = {pattern: set(fnmatch.filter(names, pattern)) for pattern in named_patterns}
    assert all(matched.values()), matched
    assert set.union(*matched.values()) == names


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{file: a, %s, size: 3}", "sources.yaml: a.size: Extra inputs"),
        ("{%s}", "sources.yaml: a.file: Field required"),
        ("{file: ../a, %s}", "sources.yaml: a: file '../a' is not a path within"),
        ("{file: /a, %s}", "file '/a' is not a path within"),
        ("{file: a, %s, sha256: abc, checksum_from: us}", "sources.yaml: a.sha256: String should match"),
        (f"{{file: a, %s, sha256: '{SHA256}'}}", "a checksum and checksum_from go together"),
        ("{file: a, %s, checksum_from: us}", "a checksum and checksum_from go together"),
        (f"{{file: a, %s, sha256: '{SHA256}', md5: '{SHA256[:32]}', checksum_from: us}}", "has both sha256 and md5"),
        ("{file: a, %s, obtain: ask}", "has to have either urls or obtain"),
        ("{file: a, licence: free}", "has to have either urls or obtain"),
        ("{file: a, licence: free, urls: ['ftp://example.org/a']}", "a.urls.0: String should match"),
        ("{file: a, %s, copies: [{source: c, member: a}]}", "copies of a: there is no source c"),
        ("{file: a, %s, bytes: 0}", "sources.yaml: a.bytes: Input should be greater"),
        ("{file: a, %s}\nb: {file: a, %s}", "a and b have the same file, a"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(f"a: {entry}\n".replace("%s, ", f"{ENTRY},\n  ").replace("%s", ENTRY))
    with pytest.raises(UserError) as error:
        read_sources(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
