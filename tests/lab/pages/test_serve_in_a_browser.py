"""The page of the server as a person meets it, in Debian's Chromium."""

import re
from pathlib import Path

import pytest
from browser import CHROMIUM, MISSING, WIDER, look, open_page
from plain_models import PAIRS
from playwright.sync_api import Page, expect
from served_models import serving, translations

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)>"
NAMES = ["RK2", "other <script>alert(1)</script>"]
SOURCE = PAIRS[0][0]


def write(page: Page, text: str, articles: int) -> None:
    """Type a text, and wait for its translations."""
    page.fill("#text", text)
    expect(page.locator("#results article")).to_have_count(articles)


def contents(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_the_page(untrained: Path, tmp_path: Path) -> None:
    with (
        serving(*(f"{name}={untrained}" for name in NAMES), "--max-lines", 40) as port,
        open_page() as page,
    ):
        page.goto(f"http://127.0.0.1:{port}/")
        check_translations(page, port)
        check_inside(page)
        for width, scheme in ((400, "light"), (1400, "dark")):
            look(page, width, scheme)
            assert page.evaluate(WIDER) == 0
        check_file(page, port, tmp_path)


def check_translations(page: Page, port: int) -> None:
    """Text that is typed is translated by each model."""
    write(page, f"{SOURCE}\n\n{HOSTILE}", 2)
    assert contents(page, "#results h3") == [SOURCE, HOSTILE]
    assert contents(page, "#results dt") == NAMES * 2
    best = contents(page, "#results article:first-child dd li:first-child")
    (expected,) = translations(port, [SOURCE])
    assert [re.sub(r" -\d+\.\d\d$", "", text) for text in best] == [expected, expected]
    assert page.evaluate("document.querySelectorAll('#results article:first-child li').length") == 4  # 2-best of two
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.getElementById('score-note').checkVisibility()")
    page.evaluate("document.querySelector('#results button.copy').click()")
    copied = page.evaluate("new Promise(r => setTimeout(r, 200)).then(() => navigator.clipboard.readText())")
    assert copied == expected


def check_inside(page: Page) -> None:
    """A look inside, by the keyboard, shows attention and stage weights."""
    write(page, SOURCE, 1)
    page.evaluate("document.querySelector('#results article > button').focus()")
    page.keyboard.press("Enter")
    expect(page.locator("#inside-title")).to_be_focused()
    assert contents(page, "#inside-systems h4")[:2] == ["Attention", "Stage weights at each word"]
    assert "decoder layer 2: cross-attention, mean of the heads." in contents(page, ".attention p")[0]
    cells = "[...document.querySelector('.attention table').querySelectorAll('td[style]')]"
    columns = page.evaluate("document.querySelector('.attention table').querySelectorAll('thead th').length")
    weights = page.evaluate(f"{cells}.map(c => parseFloat(c.title.split(': ').at(-1)))")
    assert sum(weights[:columns]) == pytest.approx(1, abs=0.1)
    stages = page.evaluate("[...document.querySelector('.weights tbody tr').cells].map(c => c.textContent)")
    assert sum(map(float, stages[1:])) == pytest.approx(1, abs=0.02)


def check_file(page: Page, port: int, folder: Path) -> None:
    """A file becomes a file of as many lines."""
    (folder / "text.en").write_text(f"{SOURCE}\n\n{SOURCE}\n")
    page.set_input_files("#file", folder / "text.en")
    page.evaluate("document.getElementById('file-form').requestSubmit()")
    (expected,) = translations(port, [SOURCE])
    with page.expect_download() as download:
        page.click("#file-status a")
    assert download.value.suggested_filename == "text.de"
    assert download.value.path().read_text() == f"{expected}\n\n{expected}\n"
