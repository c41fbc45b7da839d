"""HTML pages that need no network: templates of Jinja2 with one style sheet, everything escaped and inline.

A template extends ``base.html`` and fills its blocks ``title``, ``navigation`` and ``content``. Its script is the text
of files of ``templates/``: the page's policy allows exactly this text and no request for anything outside the page.
"""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"
# Every text that is not marked as safe is escaped.
ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def render_page(template: str, scripts: Sequence[str] = (), connect: str = "'none'", **values: Any) -> str:
    """Return a page as HTML.

    :param template: name of a file of ``templates/``
    :param scripts: names of the page's scripts there, which become one
    :param connect: addresses that the script may send requests to, as in ``connect-src`` of a Content-Security-Policy
    """
    script = "\n".join(map(read_template, scripts))
    style, policy = read_template("style.css"), content_policy(script, connect)
    return ENVIRONMENT.get_template(template).render(style=style, script=script, policy=policy, **values)


def read_template(name: str) -> str:
    """Return the text of a file of ``templates/``."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def content_policy(script: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy that allows one script, inline styles and pictures, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    styles = "style-src 'unsafe-inline'; img-src data:"
    return f"default-src 'none'; script-src {scripts}; {styles}; connect-src {connect}; base-uri 'none'"
