"""The incident report as one HTML file: nothing fetched, log text always escaped, readable without its scripts.

The page's values come from ``view`` and the modules beside it and are plain; the template only places them. One
Jinja environment, autoescape on, undefined names are errors. A content security policy allows the page's own
style and scripts by their hashes and nothing else, and closes the ways by which a string could become markup
(trusted types), so that even a flaw in the escaping could not run or load anything.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from logforensics.language import _
from logforensics.render.attempts import attempt_rows
from logforensics.render.environment import environment_rows
from logforensics.render.event_table import event_table
from logforensics.render.fate_grid import fate_grid
from logforensics.render.source_rows import source_rows
from logforensics.render.timeline_chart import timeline_chart
from logforensics.render.view import Page, build_page
from logforensics.render.words import FATE_SIGNS, ROLE_SIGNS, ROLE_WORDS, fate_words
from logforensics.resources import data_text

if TYPE_CHECKING:
    from logforensics.analysis import Analysis
    from logforensics.render.event_table import EventTable

_EARLY = "early.js"
_SCRIPTS = ("vendor/echarts.min.js", "timeline_layout.js", "timeline.js", "report.js")
# The chart's library empties its element through innerHTML; the page's default policy lets that pass alone.
_POLICY = (
    "default-src 'none'; style-src {style}; script-src {scripts}; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types default"
)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the one Jinja environment; templates are read from ``reports/``."""
    made = Environment(
        loader=FunctionLoader(lambda name: data_text("reports", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(_=_, json=_json)
    return made


def to_html(analysis: Analysis) -> str:
    """Return the report as one self-contained HTML document."""
    page = build_page(analysis)
    table = _table(analysis, page)
    chart = timeline_chart(analysis, table, _leads(page, table))
    style = data_text("reports", "report.css")
    early, *scripts = (data_text("reports", name) for name in (_EARLY, *(_SCRIPTS if chart else _SCRIPTS[-1:])))
    policy = _POLICY.format(style=_hash(style), scripts=" ".join(map(_hash, [early, *scripts])))
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            chart=chart,
            events=table,
            grid=fate_grid(analysis.ranks, fate_words(analysis.verdict.status == "undetermined")),
            attempts=attempt_rows(analysis.attempts, analysis.events),
            environment=environment_rows(analysis.events),
            sources=source_rows(analysis.sources, analysis.events),
            role_signs=ROLE_SIGNS,
            role_words=ROLE_WORDS,
            fate_signs=FATE_SIGNS,
            policy=policy,
            # ours, byte for byte what the policy's hashes were taken of
            style=Markup(style),
            early=Markup(early),
            scripts=list(map(Markup, scripts)),
        )
    )


def _table(analysis: Analysis, page: Page) -> EventTable:
    needed = {item.event_id for item in analysis.verdict.evidence}
    needed |= {link.event_id for link in analysis.chain} | {row.event_id for row in page.exceptions}
    return event_table(analysis.events, needed, set(analysis.verdict.ranks))


def _leads(page: Page, table: EventTable) -> dict[int, str]:
    """Which rows of the event table are a piece of evidence: a click on their mark leads to the lines around it."""
    return {
        table.row_of[quote.event_id]: f"evidence-{number}"
        for number, quote in enumerate(page.evidence, 1)
        if quote.event_id in table.row_of
    }


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _json(value: Any) -> Markup:
    """Return JSON that may stand inside a script element: no character in it can end the element."""
    text = json.dumps(value, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
