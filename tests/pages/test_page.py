"""The look of pages: what they may load, and colours that stay apart."""

import re

import pytest
from markupsafe import Markup

from ode_transformer.pages.page import ENVIRONMENT, content_policy, read_template, render_page
from ode_transformer.pages.svg import SERIES, draw_svg

STYLE = read_template("style.css")


def variables(block: int) -> dict[str, tuple[int, ...]]:
    """Return the colours of the light (0) or dark (1) scheme."""
    body = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[block]
    pairs = re.findall(r"--([\w-]+): #([0-9a-f]{6})", body)
    return {name: tuple(int(code[i : i + 2], 16) for i in (0, 2, 4)) for name, code in pairs}


def luminance(colour: tuple[int, ...]) -> float:
    """Return the relative luminance of WCAG 2."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("block", [0, 1])
def test_text_and_lines_are_legible(block: int) -> None:
    colours = variables(block)
    for name in ("ink", "muted", "accent", "added", "missing"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for mark in ("added", "missing"):
        assert contrast(colours[mark], colours[f"{mark}-back"]) >= 4.5
    for number in range(len(SERIES)):
        assert contrast(colours[f"series-{number}"], colours["paper"]) >= 3, number


def test_the_policy_allows_one_script_and_no_request() -> None:
    policy = content_policy("alert(1)")
    assert "script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='" in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "script-src 'none'" in content_policy("")


def test_text_is_escaped() -> None:
    template = ENVIRONMENT.from_string("{{ text }}")
    assert template.render(text="<b>&") == "&lt;b&gt;&amp;"
    assert not isinstance(template.render(text="x"), Markup)
    with pytest.raises(Exception, match="undefined"):
        render_page("report.html")


def test_figures_have_the_colours_of_the_page_and_names_of_their_own() -> None:
    first, second = (draw_svg(lambda axes: axes.plot([1, 2], label="a"), 'a "line"') for _ in range(2))
    assert 'aria-label="a &#34;line&#34;"' in first
    assert "var(--series-0)" in first
    assert set(re.findall(r"#[0-9a-f]{6}\b", first)) <= {"#000000", "#ffffff"}
    names = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    used = set(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", first))
    assert used <= names[0]
