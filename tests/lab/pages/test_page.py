"""The look of pages: what they may load, and colours that stay apart."""

import re

import pytest
from markupsafe import Markup

from ode_transformer.lab.pages.page import ENVIRONMENT, content_policy, drawing, render_page


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
    first, second = (drawing("", 'a "line"', lambda axes: axes.plot([1, 2], label="a")).svg for _ in range(2))
    assert 'aria-label="a &#34;line&#34;"' in first
    assert "var(--series-0)" in first
    assert set(re.findall(r"#[0-9a-f]{6}\b", first)) <= {"#000000", "#ffffff"}
    names = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    used = set(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", first))
    assert used <= names[0]
