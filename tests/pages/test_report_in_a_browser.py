"""The page of a report as a person meets it, in Debian's Chromium."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, MISSING, Page, open_browser
from reported_runs import HOSTILE, make_language_run, make_runs

from ode_transformer.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

# Figures with an area and with lines in them; text that is smaller on the screen than 9 pixels.
FIGURES = "[...document.querySelectorAll('figure svg')].filter(s => s.checkVisibility())"
EMPTY = f"{FIGURES}.filter(s => s.getBoundingClientRect().height < 100 || s.querySelectorAll('path').length < 5).length"
TINY = f"""{FIGURES}.flatMap(s => [...s.querySelectorAll('text')]
    .map(t => parseFloat(getComputedStyle(t).fontSize) * s.getBoundingClientRect().width / s.viewBox.baseVal.width))
    .filter(size => size < 9).length"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOCUSABLE = """[...document.querySelectorAll('a[href], input, select, summary, [tabindex="0"]')]
    .filter(e => e.checkVisibility()).length"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reported")
    runs = make_runs(folder / "pairs")
    names = ["--names", "Euler", "Euler", f"RK2 {HOSTILE}"]
    page = folder / "report.html"
    assert main(["report", *map(str, runs), *names, "--output", str(page), "--sentences", "4"]) == 0
    return page


@pytest.fixture(scope="module")
def page(page_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        page = browser.new_page()
        page.open(page_file.as_uri())
        yield page


def test_no_complaint_and_no_request(page: Page, page_file: Path) -> None:
    assert page.complaints == []
    assert page.evaluate("performance.getEntriesByType('resource').map(e => e.name)") == []
    assert page_file.stat().st_size < 3e6
    assert not re.search(r"(src|href)=\"(?!#|data:)", page_file.read_text())


def test_hostile_text_shows_itself(page: Page) -> None:
    assert page.evaluate("document.title").startswith("Pairs <script>")
    text = page.evaluate("document.querySelector('main').textContent")
    assert text.count(HOSTILE) >= 4  # names, machine, an output
    assert page.evaluate("document.querySelectorAll('script').length") == 2  # the map's data, the page's own
    assert page.evaluate("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_legible_at_every_width(page: Page, width: int, scheme: str) -> None:
    page.look(width, scheme)
    assert page.evaluate(f"{FIGURES}.length") >= 15
    assert page.evaluate(EMPTY) == 0
    assert page.evaluate(TINY) == 0
    assert page.evaluate(WIDER) == 0
    ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
    assert (brightness[0] < brightness[1]) == (scheme == "light")
    assert abs(brightness[0] - brightness[1]) > 450


def test_sections_and_scores(page: Page) -> None:
    titles = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert titles == [
        *("Systems", "Training", "Depth", "Attention", "Surprisal by word", "Outputs side by side"),
        "Commands and machine",
    ]
    rows = page.evaluate(
        "[...document.querySelectorAll('#systems tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows[0][:3] == ["Euler", "1, 2", "21.00 ± 12.71"]  # t(0.975, 1 degree of freedom) = 12.71, times 1
    assert re.fullmatch(r"30\.00 ± \d+\.\d\d", rows[1][2])
    assert rows[2][:3] == ["Table 1: RK2", "", "30.50"]
    weights = page.evaluate("document.querySelector('#depth .tiles td.number').textContent")
    assert re.fullmatch(r"0\.\d{3} ± 0\.\d{3}", weights)
    assert page.evaluate("document.querySelectorAll('#sentences ins, #sentences del').length") == 3


def test_the_keyboard_reaches_and_moves_everything(page: Page) -> None:
    page.look(1400)
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    seen = set()
    for _ in range(page.evaluate(FOCUSABLE) + 5):
        page.press("Tab", 9)
        seen.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    # Of the radio buttons of one group, Tab reaches the chosen one.
    assert len(seen - {-1}) >= page.evaluate(FOCUSABLE) - 2
    page.evaluate("document.querySelector('input[name=axis]').focus()")
    labels = f"{FIGURES}.map(s => s.getAttribute('aria-label')).filter(l => l.startsWith('Loss'))"
    assert page.evaluate(labels) == [page.evaluate(labels)[0]]
    assert "by updates" in page.evaluate(labels)[0]
    page.press("ArrowRight", 39)
    assert "by minutes" in page.evaluate(labels)[0]
    page.press("ArrowRight", 39)
    assert "by operations" in page.evaluate(labels)[0]


def test_the_attention_map_follows_the_lists(page: Page) -> None:
    def shades() -> list[float]:
        cells = "document.querySelectorAll('#attention-map td[style]')"
        return page.evaluate(f"[...{cells}].map(c => parseFloat(c.title.split(': ').at(-1)))")

    mean = shades()
    choose = """(() => {
        const list = document.querySelectorAll('#attention select')[3];
        list.value = '%s';
        list.dispatchEvent(new Event('change'));
    })()"""
    heads = []
    for head in ("1", "2"):
        page.evaluate(choose % head)
        heads.append(shades())
    assert heads[0] != heads[1]
    assert [(a + b) / 2 for a, b in zip(*heads, strict=True)] == pytest.approx(mean, abs=0.011)
    columns = page.evaluate("document.querySelectorAll('#attention-map thead th').length")
    for start in range(0, len(mean), columns):
        assert sum(mean[start : start + columns]) == pytest.approx(1, abs=0.05)


def test_it_prints_all_of_it(page: Page, tmp_path: Path) -> None:
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    page.look(800, media="print")
    assert page.evaluate("document.querySelector('.contents').checkVisibility()") is False
    assert page.evaluate("document.querySelectorAll('.panel')[2].checkVisibility()") is True
    page.look(1400)


def test_a_language_model(tmp_path: Path) -> None:
    page_file = tmp_path / "lm.html"
    run = make_language_run(tmp_path / "text")
    assert main(["report", str(run), "--output", str(page_file), "--sentences", "4", "--lines", "1,2"]) == 0
    with open_browser(tmp_path) as browser:
        page = browser.new_page()
        page.open(page_file.as_uri())
        assert page.complaints == []
        words = page.evaluate("[...document.querySelectorAll('#surprisal ruby')].map(r => r.firstChild.textContent)")
        bits = page.evaluate("[...document.querySelectorAll('#surprisal rt')].map(r => parseFloat(r.textContent))")
    assert words[:4] == ["The", "dog", "sleeps", "under"]
    assert len(words) == len(bits)
    assert min(bits) > 0
