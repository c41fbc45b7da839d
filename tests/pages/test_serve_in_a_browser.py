"""The page of the server as a person meets it, in Debian's Chromium."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, MISSING, TIMEOUT, Page, open_browser
from commands_for_tests import PAIRS
from served_models import serving, translations

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)>"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
NAMES = ["RK2", f"other {HOSTILE}"]
SOURCE = PAIRS[0][0]


@pytest.fixture(scope="module")
def port(untrained: Path) -> Iterator[int]:
    with serving(*(f"{name}={untrained}" for name in NAMES), "--max-lines", 40) as port:
        yield port


@pytest.fixture(scope="module")
def page(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        page = browser.new_page()
        page.open(f"http://127.0.0.1:{port}/")
        yield page


def wait(page: Page, condition: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def write(page: Page, text: str, articles: int) -> None:
    """Type a text, and wait for its translations."""
    page.evaluate("document.getElementById('text').select()")
    page.send("Input.insertText", text=text)
    wait(page, f"document.querySelectorAll('#results article').length === {articles}")


def contents(page: Page, selector: str) -> list[str]:
    return page.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


def test_what_is_typed_is_translated_by_each_model(page: Page, port: int) -> None:
    write(page, f"{SOURCE}\n\n{HOSTILE}", 2)
    assert contents(page, "#results h3") == [SOURCE, HOSTILE]
    assert contents(page, "#results dt") == NAMES * 2
    best = contents(page, "#results article:first-child dd li:first-child")
    (expected,) = translations(port, [SOURCE])
    assert [re.sub(r" -\d+\.\d\d$", "", text) for text in best] == [expected, expected]
    assert page.evaluate("document.querySelectorAll('#results article:first-child li').length") == 4  # 2-best of two
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert "unknown to the model" not in page.evaluate("document.getElementById('status').textContent")


def test_a_look_inside_by_keyboard(page: Page) -> None:
    write(page, SOURCE, 1)
    page.evaluate("document.querySelector('#results button').focus()")
    page.press("Enter", 13)
    wait(page, "document.activeElement.id === 'inside-title'")
    page.look(1400)
    tops = page.evaluate("[...document.querySelectorAll('#inside-systems > article')].map(a => a.offsetTop)")
    assert tops == [tops[0]] * 2  # side by side
    assert contents(page, "#inside-systems h4")[:2] == ["Attention", "Stage weights at each word"]
    assert "decoder layer 2: cross-attention, mean of the heads." in contents(page, ".attention p")[0]
    cells = "[...document.querySelector('.attention table').querySelectorAll('td[style]')]"
    columns = page.evaluate("document.querySelector('.attention table').querySelectorAll('thead th').length")
    weights = page.evaluate(f"{cells}.map(c => parseFloat(c.title.split(': ').at(-1)))")
    assert sum(weights[:columns]) == pytest.approx(1, abs=0.1)
    stages = page.evaluate("[...document.querySelector('.weights tbody tr').cells].map(c => c.textContent)")
    assert sum(map(float, stages[1:])) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_legible_at_every_width(page: Page, width: int, scheme: str) -> None:
    page.look(width, scheme)
    assert page.evaluate(WIDER) == 0
    box = "document.getElementById('text').getBoundingClientRect().width"
    assert page.evaluate(box) > 0.85 * min(width, 1300)
    sizes = page.evaluate("[...document.querySelectorAll('main *')].map(e => parseFloat(getComputedStyle(e).fontSize))")
    assert min(sizes) >= 9
    page.look(1400)


def test_the_keyboard_reaches_everything(page: Page) -> None:
    names = """[...document.querySelectorAll('a[href], input, select, textarea, button, [tabindex="0"]')]
        .filter(e => e.checkVisibility()).length"""
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    seen = set()
    for _ in range(page.evaluate(names) + 5):
        page.press("Tab", 9)
        seen.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(seen - {-1, 0}) >= page.evaluate(names) - 1


def test_a_file_becomes_a_file_of_as_many_lines(page: Page, port: int, tmp_path: Path) -> None:
    def upload(text: str) -> None:
        (tmp_path / "text.en").write_text(text)
        root = page.send("DOM.getDocument")["root"]["nodeId"]
        node = page.send("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        page.send("DOM.setFileInputFiles", files=[str(tmp_path / "text.en")], nodeId=node)
        page.evaluate("document.getElementById('file-form').requestSubmit()")
        wait(page, "!/Translating/.test(document.getElementById('file-status').textContent)")

    upload(f"{SOURCE}\n\n{SOURCE}\n")
    assert page.evaluate("document.querySelector('#file-status a').download") == "translation-of-text.en"
    (expected,) = translations(port, [SOURCE])
    page.browser.send("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.evaluate("document.querySelector('#file-status a').click()")
    file, deadline = tmp_path / "translation-of-text.en", time.monotonic() + TIMEOUT
    while not file.exists() or not file.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert file.read_text() == f"{expected}\n\n{expected}\n"


def test_no_complaint(page: Page) -> None:
    assert page.complaints == []


def test_a_refusal_is_a_line(page: Page) -> None:
    page.evaluate("document.getElementById('text').select()")
    page.send("Input.insertText", text="word\n" * 41)
    wait(page, "/^Refused/.test(document.getElementById('status').textContent)")
    text = page.evaluate("document.getElementById('status').textContent")
    assert text == "Refused: 42 lines, at most 40 are allowed in a request"
