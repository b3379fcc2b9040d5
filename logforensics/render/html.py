"""The incident report as one HTML file: no script, nothing fetched, log text always escaped.

The page's values come from ``view`` and are plain; the template only places them. One Jinja environment,
autoescape on, undefined names are errors. A content security policy allows the page's own style and
nothing else, so that even a flaw in the escaping could not run or load anything.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from logforensics.render.view import Page, build_page
from logforensics.resources import data_text

if TYPE_CHECKING:
    from logforensics.analysis import Analysis


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the one Jinja environment; templates are read from ``reports/``."""
    return Environment(
        loader=FunctionLoader(lambda name: data_text("reports", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def to_html(analysis: Analysis) -> str:
    """Return the report as one self-contained HTML document."""
    return page_html(build_page(analysis))


def page_html(page: Page) -> str:
    """Return the document of a page's values."""
    style = data_text("reports", "report.css")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    template = environment().get_template("report.html.j2")
    # the style is ours, byte for byte what the policy's hash was taken of
    return template.render(page=page, style=Markup(style), policy=policy)
