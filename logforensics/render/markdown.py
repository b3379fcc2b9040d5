"""The diagnosis as Markdown for an issue or a chat: under 60 lines, and log text stays text.

GitHub reads mentions, issue numbers, HTML, formulas and emoji names in plain text, and a backslash does not stop all
of them. So nothing is escaped: a word that could mean anything to a renderer is put in code, where nothing is read.
Template values pass through ``prose`` unless a filter has made them ``Markdown``, so none can be forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined

from logforensics.language import _, several
from logforensics.render.folding import ExceptionRow
from logforensics.render.text import cut
from logforensics.render.view import Page, Quote, build_page
from logforensics.resources import data_text

if TYPE_CHECKING:
    from logforensics.analysis import Analysis


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


class _Most(NamedTuple):
    """How much of each list is shown; together with the headings they stay below 60 lines."""

    sentences: int = 3
    quotes: int = 2
    quoted_lines: int = 4
    exceptions: int = 4
    steps: int = 5
    commands: int = 2
    missing: int = 3


_MOST = _Most()
_FOLDED_ABOVE = 3
_PROSE_CHARACTERS = 500
_CODE_CHARACTERS = 300
_PLAIN_WORD = re.compile(r"(?:[^\W_]|[.,;:()'\"%+/=!?–—…·→’-])+")
_MEANS_SOMETHING = re.compile(
    r"://|www\.|:(?!\d\d:)[\w+-]+:"  # links and emoji, but not 20:15:00
    r"|(?<![^\W_])[0-9a-f]{7,40}(?![^\W_])|(?<![^\W_])[A-Z]{2,10}-\d+"  # commits, and issues of GitHub and others
    r"|--|==|^[-+=]$"
)
_STARTS_A_BLOCK = re.compile(r"\d+[.)]$|[-+=]+$|[-+]$")
_CORE = re.compile(r"([(\"']*)(.*?)([.,;:)\"'!?]*)", re.S)
_BACKTICKS = re.compile(r"`+")


def to_markdown(analysis: Analysis) -> str:
    """Return the diagnosis as Markdown for GitHub, GitLab or a chat."""
    return page_markdown(build_page(analysis))


def page_markdown(page: Page) -> str:
    """Return the document of a page's values."""
    missing = page.missing[: _MOST.missing]
    if len(page.missing) > len(missing):
        missing[-1:] = [_("and {count} more; see the full report").format(count=len(page.missing) - len(missing) + 1)]
    rendered = (
        _environment()
        .get_template("report.md.j2")
        .render(
            page=page,
            most=_MOST,
            missing=missing,
            exceptions=_exceptions(page),
            folded=len(page.exceptions) > _FOLDED_ABOVE,
        )
    )
    return re.sub(r"\n{3,}", "\n\n", rendered).strip("\n") + "\n"


def prose(text: object) -> Markdown:
    """Return one line of text as Markdown that reads the same; words that could mean something are in code."""
    if isinstance(text, Markdown):
        return text
    done: list[str] = []
    waiting: list[str] = []  # neighbours that need code share one span
    for word in cut(str(text), _PROSE_CHARACTERS).split():
        if _is_plain(word) and (done or waiting or not _STARTS_A_BLOCK.match(word)):
            done += [*_together(waiting), word]
            waiting = []
            continue
        before, core, after = _around(word)
        if before:
            done += _together(waiting)
            waiting = []
        waiting.append(core)
        if before or after:
            done.append(before + code(" ".join(waiting)) + after)
            waiting = []
    return Markdown(" ".join((*done, *_together(waiting))))


def _together(words: list[str]) -> list[str]:
    return [code(" ".join(words))] if words else []


def _around(word: str) -> tuple[str, str, str]:
    """Split off quotes, brackets and full stops, if the rest is what needs the code."""
    match = _CORE.fullmatch(word)
    if match is None or _is_plain(match[2]):
        return "", word, ""
    return match[1], match[2], match[3]


def _is_plain(word: str) -> bool:
    return _PLAIN_WORD.fullmatch(word) is not None and not _MEANS_SOMETHING.search(word)


def code(text: object) -> Markdown:
    """Return text as a code span, whatever backticks it holds."""
    raw = cut(" ".join(str(text).split()), _CODE_CHARACTERS)
    if not raw:
        return Markdown("")
    ticks = "`" * (_longest_run(raw) + 1)
    pad = " " if raw[0] == "`" or raw[-1] == "`" else ""
    return Markdown(f"{ticks}{pad}{raw}{pad}{ticks}")


def fence(lines: Sequence[str], language: str) -> Markdown:
    """Return lines as a fenced block that nothing in them can close."""
    shown = [cut(line, _CODE_CHARACTERS) for line in lines]
    ticks = "`" * max(3, _longest_run("\n".join(shown)) + 1)
    return Markdown("\n".join((ticks + language, *shown, ticks)))


def _longest_run(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _excerpt(quote: Quote, whole: bool) -> list[str]:
    """The lines of a quote: around the first one's, the evidence itself of any other."""
    if not quote.lines:
        return [quote.text]
    if not whole:
        return [next(line.text for line in quote.lines if line.hit)]
    first = next(place for place, line in enumerate(quote.lines) if line.hit)
    start = max(0, min(first - 1, len(quote.lines) - _MOST.quoted_lines))
    return [line.text for line in quote.lines[start : start + _MOST.quoted_lines]]


def _exceptions(page: Page) -> list[str]:
    """The first errors in lines, the origin's always among them."""
    shown = sorted(page.exceptions, key=lambda row: not row.origin)[: _MOST.exceptions]
    rows = [row for row in page.exceptions if row in shown]
    hidden = sum(row.count for row in page.exceptions if row not in shown) + page.exceptions_hidden
    width = max((len(_who(row)) for row in rows), default=0)
    lines = [
        " ".join(filter(None, (">" if row.origin else " ", f"{_who(row):<{width}}", row.time, _what(row))))
        for row in rows
    ]
    return [*lines, "  " + _("and {count} more").format(count=hidden)] if hidden else lines


def _who(row: ExceptionRow) -> str:
    return several("rank {ranks}", "ranks {ranks}", row.count).format(ranks=cut(row.ranks, 24))


def _what(row: ExceptionRow) -> str:
    lead = f" ({row.lead})" if row.lead else ""
    return f"{cut(row.message, 120)}{lead} [{cut(row.place, 80)}]"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: data_text("reports", name)),
        autoescape=False,  # the result is no HTML: finalize takes its place
        finalize=prose,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["_"] = _
    environment.filters.update({"code": code, "fence": fence, "excerpt": _excerpt})
    return environment
