"""The verdict in the terminal, for a person at 3 a.m.: the answer, what it rests on, what to do.

Nothing from a log is ever read as rich markup: every string becomes a ``Text``. Colour only repeats what
words and marks already say. Without UTF-8 the output keeps to the console's own characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from logforensics.language import _, later, several
from logforensics.render.commands import wrap_command
from logforensics.render.folding import ExceptionRow
from logforensics.render.sheet import PROSE, Sheet
from logforensics.render.timeline_table import print_timeline
from logforensics.render.view import FateRow, Page, Quote, build_page

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

__all__ = ["print_timeline", "print_verdict"]

_BORDER = {"diagnosed": "bold", "undetermined": "yellow", "no_failure": "green"}
# Excerpts of the first pieces of evidence are shown whole, of the rest the line alone.
_QUOTED = 2
_HIT_LINES = 4
_WIDE = 130
# The titles of columns are their names, translated when shown.
_TITLES = (
    *(later("rank"), later("time"), later("before timeout"), later("what"), later("where")),
    *(later("fate"), later("last step"), later("ended by"), later("why")),
)


def print_verdict(analysis: Analysis, console: Console) -> None:
    """Print the whole verdict on ``console``: plain text when it is no terminal, colours as it allows."""
    sheet, page = Sheet(console), build_page(analysis)
    _answer(page, sheet)
    _evidence(page, sheet)
    if page.exceptions and page.status != "no_failure":
        _exceptions(page, sheet)
    _chain(page, sheet)
    _fates(page, sheet)
    _collectives(page, sheet)
    _remedies(page, sheet)
    _bullets(page.missing, _("What is missing"), sheet)
    _bullets(page.advice, _("From the configuration files"), sheet)
    _bullets(page.alternatives, _("Also considered, and less likely"), sheet)
    _run(page, sheet)


def _answer(page: Page, sheet: Sheet) -> None:
    facts = [page.status_words, page.category]
    if page.status != "no_failure":
        facts.append(page.phase_words)
    if page.nodes:
        facts.append(_("on {nodes}").format(nodes=page.nodes))
    label = sheet.text(" · ".join(facts))
    sure = Text.assemble(
        sheet.text(_("Confidence: {confidence}").format(confidence=page.confidence_name), "bold"),
        sheet.text(f" ({page.confidence_words})"),
    )
    body = Group(sheet.text(page.headline, "bold"), label, sure)
    sheet.console.print()
    sheet.put(Panel(body, border_style=_BORDER.get(page.status, ""), padding=(0, 1)), PROSE)
    for sentence in page.explanation:
        sheet.prose(sentence, 1, "•")


def _evidence(page: Page, sheet: Sheet) -> None:
    if not page.evidence:
        return
    sheet.heading(_("Evidence"))
    for number, quote in enumerate(page.evidence):
        if number:
            sheet.console.print()
        about = " · ".join(part for part in (quote.who, quote.time) if part)
        line = Text.assemble(sheet.text(sheet.fit(quote.place, sheet.width), "cyan"))
        if about and len(line) + len(about) + 3 <= sheet.width:
            line.append(sheet.say(f"  {about}"), "dim")
            sheet.put(line)
        else:
            sheet.put(line)
            if about:
                sheet.put(sheet.text(f"  {about}", "dim"))
        for place in quote.also:
            sheet.put(sheet.text(sheet.fit("  " + _("also at {place}").format(place=place), sheet.width), "dim"))
        _lines(quote, sheet, whole=number < _QUOTED)


def _lines(quote: Quote, sheet: Sheet, whole: bool) -> None:
    if not whole or not quote.lines:
        for piece in sheet.pieces(quote.text, sheet.width - 4, _HIT_LINES):
            sheet.put(sheet.text("    " + piece))
        return
    digits = len(str(quote.lines[-1].number))
    for line in quote.lines:
        gutter = sheet.say(f"  {'▸' if line.hit else ' '} {line.number:>{digits}} │ ")
        blank = sheet.say(f"    {'':>{digits}} │ ")
        room = sheet.width - len(gutter)
        for piece in sheet.pieces(line.text, room, _HIT_LINES if line.hit else 1):
            sheet.put(Text.assemble((gutter, "" if line.hit else "dim"), (piece, "bold" if line.hit else "dim")))
            gutter = blank


def _exceptions(page: Page, sheet: Sheet) -> None:
    alike = any(row.count > 1 for row in page.exceptions)
    sheet.heading(_("First error of each rank (like ones folded)") if alike else _("First error of each rank"))
    wide = sheet.width >= _WIDE
    rows = page.exceptions
    place = min(max(len(row.place) for row in rows), sheet.width // 3) if wide else 0
    columns = {
        "": 1,
        "rank": max(4, min(max(_widest(_ranks(row)) for row in rows), 30 if wide else 12)),
        "time": 12,
        "before timeout": max(14, min(max(len(row.lead) for row in rows), 20)) if wide else 11,
        "what": 0,
        "where": place,
    }
    if not page.has_leads:
        del columns["before timeout"]
    if not wide:
        del columns["where"]
    table = sheet.table(columns)
    room = columns["what"]
    for row in rows:
        what = Text.assemble((sheet.fit(row.message, 3 * room, keep_end=False), "bold" if row.origin else ""))
        for part in (" · ".join(filter(None, (row.category, row.node))), "" if wide else row.place):
            if part:
                what.append("\n" + sheet.fit(part, room), "dim")
        cells = {
            "": sheet.text("▸" if row.origin else ""),
            "rank": sheet.text(_ranks(row), "bold" if row.origin else ""),
            "time": sheet.text(row.time, "dim"),
            "before timeout": sheet.text(row.lead),
            "what": what,
            "where": sheet.text(sheet.fit(row.place, place), "cyan"),
        }
        table.add_row(*(cells[name] for name in columns))
    sheet.put(table)
    if page.exceptions_hidden:
        more = several(
            "and {count} more error in other words; all are in --json",
            "and {count} more errors in other words; all are in --json",
            page.exceptions_hidden,
        )
        sheet.prose(more.format(count=f"{page.exceptions_hidden:,}"), 3)


def _ranks(row: ExceptionRow | FateRow) -> str:
    """The ranks, and how many they are when that is not seen at a glance."""
    return row.ranks + ("\n" + _("{count} ranks").format(count=f"{row.count:,}") if row.count > 4 else "")


def _widest(text: str) -> int:
    return max(map(len, text.split("\n")))


def _chain(page: Page, sheet: Sheet) -> None:
    if not page.chain:
        return
    sheet.heading(_("How it spread"))
    for number, row in enumerate(page.chain, 1):
        body = Text.assemble(
            (sheet.say(f"{row.time}  "), "dim") if row.time else "",
            sheet.text(row.what),
            (sheet.say(f" ({row.because})"), "dim"),
        )
        sheet.prose(body, 1, f"{number}.")


def _fates(page: Page, sheet: Sheet) -> None:
    if not page.fates:
        return
    sheet.heading(_("What became of each rank"))
    rows = page.fates
    wide = sheet.width >= 110
    columns = {
        "": 1,
        "fate": max(len(row.words) for row in rows) if wide else 13,
        "rank": max(4, min(max(_widest(_ranks(row)) for row in rows), 30 if wide else 12)),
        "last step": 9,
        "ended by": max(8, min(max(len(row.ended) for row in rows), 24 if wide else 10)),
        "why": 0,
    }
    for name, shown in (
        ("last step", any(row.last_step for row in rows)),
        ("ended by", any(row.ended for row in rows)),
    ):
        if not shown:
            del columns[name]
    table = sheet.table(columns, 140)
    for row in rows:
        origin = row.fate == "origin"
        cells = {
            "": sheet.text("▸" if origin else ""),
            "fate": sheet.text(row.words, "bold" if origin else ""),
            "rank": sheet.text(_ranks(row)),
            "last step": sheet.text(row.last_step),
            "ended by": sheet.text(row.ended),
            "why": sheet.text(row.why, "dim"),
        }
        table.add_row(*(cells[name] for name in columns))
    sheet.put(table)


def _collectives(page: Page, sheet: Sheet) -> None:
    if not page.collectives:
        return
    sheet.heading(_("Where they waited"))
    for row in page.collectives:
        entered = _(", entered at {time}").format(time=row.issued) if row.issued else ""
        sheet.prose(Text.assemble(sheet.text(row.name, "bold"), sheet.text(entered)), 1)
        if row.waiting:
            sheet.prose(_("waiting: {ranks}").format(ranks=row.waiting), 3)
        if row.absent:
            sheet.prose(_("never entered: {ranks}").format(ranks=row.absent), 3)
        for text in row.mismatched:
            sheet.prose(_("came with something else: {what}").format(what=text), 3)


def _remedies(page: Page, sheet: Sheet) -> None:
    if not page.remedies:
        return
    sheet.heading(_("What to do"))
    for number, remedy in enumerate(page.remedies):
        if number:
            sheet.console.print()
        sheet.prose(sheet.text(remedy.title, "bold"), 1)
        for place, step in enumerate(remedy.steps, 1):
            sheet.prose(step, 1, f"{place}.")
        for command in remedy.commands:
            for line in wrap_command(sheet.say(command), sheet.width - 6):
                sheet.put(Padding(Text(line, style="green", overflow="fold"), (0, 0, 0, 4)))


def _bullets(texts: list[str], title: str, sheet: Sheet) -> None:
    if texts:
        sheet.heading(title)
        for text in texts:
            sheet.prose(text, 1, "•")


def _run(page: Page, sheet: Sheet) -> None:
    sheet.heading(_("The run"))
    facts = (
        [*page.run, (_("times"), _("{day}, UTC on the run's common clock").format(day=page.day))]
        if page.day
        else page.run
    )
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        sheet.prose(value, 1, f"{name:<{width}}")
