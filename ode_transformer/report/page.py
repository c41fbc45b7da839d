"""HTML pages that need no network: templates of Jinja2 with one style sheet, everything escaped and inline.

A template extends ``base.html`` and fills its blocks ``title``, ``navigation`` and ``content``. Its script is a file of
``templates/``, named as ``script``: the page's policy allows exactly this text and no request for anything outside the
page.
"""

from __future__ import annotations

import base64
import hashlib
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


def render_page(template: str, script: str | None = None, connect: str = "'none'", **values: Any) -> str:
    """Return a page as HTML.

    :param template: name of a file of ``templates/``
    :param script: name of the page's script there; None for a page without one
    :param connect: addresses that the script may send requests to, as in ``connect-src`` of a Content-Security-Policy
    :param values: of the template
    """
    script_text = read_template(script) if script else ""
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
