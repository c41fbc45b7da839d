"""HTML pages that need no network: templates of Jinja2 with one style sheet, everything escaped and inline.

A template extends ``base.html`` and fills its blocks ``title``, ``navigation`` and ``content``. Its script is the text
of files of ``templates/``: the page's policy allows exactly this text and no request for anything outside the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Return the templates, which escape every text that is not marked as safe.

    :raises UserError: Jinja2 is not installed
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise UserError("pages need Jinja2: pip install 'ode-transformer[plots]'") from error
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_page(template: str, scripts: Sequence[str] = (), connect: str = "'none'", **values: Any) -> str:
    """Return a page as HTML.

    :param template: name of a file of ``templates/``
    :param scripts: names of the page's scripts there, which become one
    :param connect: addresses that the script may send requests to, as in ``connect-src`` of a Content-Security-Policy
    :param values: of the template
    """
    script_text = "\n".join(map(read_template, scripts))
    return (
        environment()
        .get_template(template)
        .render(
            style=read_template("style.css"),
            script=script_text,
            policy=content_policy(script_text, connect),
            **values,
        )
    )


def read_template(name: str) -> str:
    """Return the text of a file of ``templates/``."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def content_policy(script: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy that allows one script, inline styles and pictures, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    styles = "style-src 'unsafe-inline'; img-src data:"
    return f"default-src 'none'; script-src {scripts}; {styles}; connect-src {connect}; base-uri 'none'"
