"""The source list: its content and the errors for mistakes in it."""

from ode_transformer.corpora.sources import read_sources
from ode_transformer.glue.tasks import TASKS


def test_files_addresses_checksums_and_copies_go_together() -> None:
    """Each file is on two hosts, or the list says why not."""
    sources = read_sources()
    assert len({source.file for source in sources.values()}) == len(sources)
    for name, source in sources.items():
        urls = [url for entry in (source, *(sources[copy.source] for copy in source.copies)) for url in entry.urls]
        assert source.obtain or source.single_host or len({url.split("/")[2] for url in urls}) > 1, name
        assert bool(source.checksum) == bool(source.checksum_from), name
        assert bool(source.urls) != bool(source.obtain), name
    assert {name for task in TASKS.values() for name in task.sources} == {
        name for name in sources if name.startswith("glue_")
    }
