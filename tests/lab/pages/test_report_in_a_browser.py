"""The page of a report as a person meets it, in Debian's Chromium."""

import re
from pathlib import Path

import pytest
from browser import CHROMIUM, MISSING, WIDER, look, open_page
from playwright.sync_api import Page
from reported_runs import HOSTILE, make_runs

from ode_transformer.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

# Figures with an area and with lines in them; text that is smaller on the screen than 9 pixels.
FIGURES = "[...document.querySelectorAll('figure svg')].filter(s => s.checkVisibility())"
EMPTY = f"{FIGURES}.filter(s => s.getBoundingClientRect().height < 100 || s.querySelectorAll('path').length < 5).length"
TINY = f"""{FIGURES}.flatMap(s => [...s.querySelectorAll('text')]
    .map(t => parseFloat(getComputedStyle(t).fontSize) * s.getBoundingClientRect().width / s.viewBox.baseVal.width))
    .filter(size => size < 9).length"""


def test_a_report_of_two_systems(tmp_path: Path) -> None:
    runs = make_runs(tmp_path / "pairs")
    systems = [f"{name}={run}" for name, run in zip(("Euler", "Euler", "Plain <script>"), runs, strict=True)]
    page_file = tmp_path / "report.html"
    assert main(["report", *systems, "--output", str(page_file), "--sentences", "1"]) == 0
    assert page_file.stat().st_size < 3e6
    assert not re.search(r"(src|href)=\"(?!#|data:)", page_file.read_text())
    with open_page() as page:
        page.goto(page_file.as_uri())
        check_hostile_text(page)
        check_legibility(page)
        check_systems_fit(page)
        check_sections(page)
        check_validations(page)
        check_choices(page)
        assert page.evaluate("performance.getEntriesByType('resource').map(e => e.name)") == []


def check_hostile_text(page: Page) -> None:
    """Hostile text shows itself."""
    assert page.evaluate("document.title").startswith("Pairs <script>")
    text = page.evaluate("document.querySelector('main').textContent")
    assert text.count(HOSTILE) >= 7  # machine, an output, three samples
    assert "Plain <script>" in text
    assert page.evaluate("document.querySelectorAll('script').length") == 2  # the map's data, the page's own
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def check_legibility(page: Page) -> None:
    """At every width, light or dark, figures have content, text is large enough, and nothing is wider than the page."""
    for width, scheme in ((400, "light"), (1400, "dark")):
        look(page, width, scheme)
        assert page.evaluate(f"{FIGURES}.length") >= 15
        assert page.evaluate(EMPTY) == 0
        assert page.evaluate(TINY) == 0
        assert page.evaluate(WIDER) == 0
        ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
        assert (brightness[0] < brightness[1]) == (scheme == "light")
        assert abs(brightness[0] - brightness[1]) > 450


def check_systems_fit(page: Page) -> None:
    """No column of a table of three scores is beyond the edge of an ordinary window."""
    look(page, 1200)
    assert page.evaluate("document.querySelectorAll('#systems thead th').length") == 11
    frame = "document.querySelector('#systems .frame')"
    assert page.evaluate(f"{frame}.scrollWidth - {frame}.clientWidth") == 0


def check_sections(page: Page) -> None:
    """Tables have the scores and weights of the runs."""
    titles = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert titles[:4] == ["Systems", "Training", "Depth", "Attention"]
    assert titles[4:] == ["Surprisal by word", "Outputs side by side", "Commands and machine"]
    rows = page.evaluate(
        "[...document.querySelectorAll('#systems tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows[0][:3] == ["Euler", "1, 2", "21.00\u00a0±\u00a012.71"]  # t(0.975, 1 degree of freedom) = 12.71, times 1
    assert re.fullmatch(r"30\.00\s±\s\d+\.\d\d", rows[1][2])
    assert rows[2][:3] == ["Table 1: RK2", "", "30.50"]
    assert len({len(row) for row in rows}) == 1
    attention = page.evaluate("document.querySelector('#attention p').textContent")
    assert "A row of a decoder layer is the word that it reads; there it writes the next one." in attention
    weights = page.evaluate("document.querySelector('#depth .tiles td.number').textContent")
    assert re.fullmatch(r"0\.\d{3} ± 0\.\d{3}", weights)
    assert page.evaluate("document.querySelectorAll('#sentences ins, #sentences del').length") == 3


def check_validations(page: Page) -> None:
    """Each validation has its learning rate, its loss and the translation of a sample."""
    rows = page.evaluate(
        "[...document.querySelectorAll('#training details:first-of-type tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows == [[str(at), f"{at / 1e4:g}", f"{8 - at / 40 + 0.2:.2f}", f"{HOSTILE} {at}"] for at in (20, 40, 60)]
    figure = f"{FIGURES}.find(s => s.getAttribute('aria-label').startsWith('Learning rate by updates'))"
    assert "end of the warm-up, 30" in page.evaluate(f"{figure}.textContent")
    best = page.evaluate("[...document.querySelectorAll('#systems tbody tr')].map(r => r.cells[5].textContent)")
    assert best == ["6.70–6.90", "6.50 at 60", ""]


def check_choices(page: Page) -> None:
    """The keyboard chooses the axis of the curves; the attention map follows its lists."""
    labels = f"{FIGURES}.map(s => s.getAttribute('aria-label')).filter(l => l.startsWith('Loss'))"
    page.evaluate("document.querySelector('input[name=axis]').focus()")
    assert [label.split(",")[0] for label in page.evaluate(labels)] == ["Loss by updates"]
    for by in ("minutes", "operations"):
        page.keyboard.press("ArrowRight")
        assert [label.split(",")[0] for label in page.evaluate(labels)] == [f"Loss by {by}"]

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
