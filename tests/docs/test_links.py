"""Links between the Markdown pages lead somewhere, and each page is linked from README."""

import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_without_code(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files and anchors of this repository that a page links to."""
    found = []
    for target in LINK.findall(text_without_code(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            found.append(((page.parent / path).resolve() if path else page, anchor))
    return found


@lru_cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ +(.+?) *$", text_without_code(page), re.MULTILINE)
    plain = [re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        assert path.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {path.name}#{anchor}"


def test_each_page_and_picture_is_linked() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [path for path, _ in links(page)] if page.suffix == ".md" else []
    files = [path for path in (ROOT / "docs").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert files
    assert [path for path in files if path not in reached and path.parent not in reached] == []


def test_the_index_names_each_page() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {path for path, _ in links(index)}
    assert [page for page in (ROOT / "docs").rglob("*.md") if page != index and page not in listed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:ode_transformer|tests|configs|scripts|benchmarks|docs|examples)/[\w./-]*)`", text_without_code(page)
    )
    assert [path for path in named if not (ROOT / path).exists()] == []
