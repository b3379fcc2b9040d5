"""The result of a check in the terminal: what is wrong first, then the scores, then the counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console

from logforensics.checking.fixtures import Checked
from logforensics.checking.score import Row, Score, score
from logforensics.render.sheet import Sheet
from logforensics.render.text import clean, counted

_WIDE = 110
_STYLES = {"unusable": "bold red", "wrong": "bold red", "fixed": "bold yellow", "known": "yellow", "right": "green"}
_STILL_MARKED = "right: take the mark known_failure out of truth.toml"
FIGURES = ("right", "of", "share", "known", "wrong")
_KEY_WIDTH = max(map(len, ("category", "evidence", "status")))
_ANSWER_LINES = 3


def print_check(results: Sequence[Checked], console: Console, *, everything: bool = False) -> None:
    """Print the results on ``console``; those that are right only when ``everything`` is asked for."""
    sheet, counts = Sheet(console), score(results)
    shown = [result for result in results if everything or result.state != "right"]
    if shown:
        show = _table if sheet.width >= _WIDE else _list
        show(shown, sheet)
    _scores(counts, sheet)
    console.print()
    for line in summary(counts):
        sheet.prose(line)


def summary(counts: Score) -> list[str]:
    """Return the counts in words, one sentence a line."""
    total = counts.total
    parts = [f"{total.right} right", f"{total.wrong} wrong", counted(total.known, "known failure")]
    parts += [f"{counts.unusable} unusable"] if counts.unusable else []
    lines = [f"{counted(total.total + counts.unusable, 'fixture')}: {', '.join(parts)}."]
    if counts.fixed:
        lines.append(f"{counted(counts.fixed, 'known failure')} came out {_STILL_MARKED}.")
    lines.append(f"Confidence high: {counted(counts.sure, 'verdict')}, {counts.surely_wrong} of them wrong.")
    return lines


def figures(row: Row) -> tuple[str, ...]:
    """Return a row's ``FIGURES`` as text."""
    return str(row.right), str(row.total), f"{row.percent} %", str(row.known or ""), str(row.wrong or "")


def rows_of(result: Checked) -> list[tuple[str, str, str]]:
    """Return what there is to say about a result as (key, expected, said)."""
    if result.problem:
        return [("problem", "", clean(result.problem))]
    differences = result.comparison.differences if result.comparison else ()
    return [(each.key, clean(each.expected), clean(each.said)) for each in differences]


def reason_of(result: Checked) -> str:
    """Return why a result that is no plain right or wrong stands as it does, "" for those."""
    if result.state == "fixed":
        return _STILL_MARKED
    return clean(result.truth.known_failure or "") if result.truth else ""


def _confidence(result: Checked) -> str:
    return result.comparison.confidence if result.comparison else ""


def _table(results: list[Checked], sheet: Sheet) -> None:
    room = sheet.width
    columns = {
        "": max(len(result.state) for result in results),
        "fixture": min(max(24, *(len(result.fixture.name) for result in results)), room * 3 // 10),
        "key": _KEY_WIDTH,
        "expected": room * 2 // 10,
        "said": 0,
        "confidence": len("confidence"),
    }
    table = sheet.table(columns)
    for result in results:
        style = _STYLES[result.state]
        left = [(sheet.say(result.fixture.name), "bold")]
        left += [(sheet.say(reason), "dim")] if (reason := reason_of(result)) else []
        rows = zip_longest(left, rows_of(result))
        for number, (name, row) in enumerate(rows):
            key, expected, said = row or ("", "", "")
            table.add_row(
                sheet.text(result.state if number == 0 else "", style),
                sheet.text(*(name or ("", ""))),
                sheet.text(key, "dim"),
                sheet.text(sheet.fit(expected, _ANSWER_LINES * columns["expected"])),
                sheet.text(sheet.fit(said, _ANSWER_LINES * columns["said"])),
                sheet.text(_confidence(result) if number == 0 else ""),
            )
    sheet.put(table)


def _list(results: list[Checked], sheet: Sheet) -> None:
    """Print what a narrow terminal has no room for in columns."""
    for result in results:
        sure = f" (confidence {_confidence(result)})" if _confidence(result) else ""
        sheet.prose(sheet.text(result.fixture.name + sure, "bold"), 0, result.state)
        if reason := reason_of(result):
            sheet.prose(sheet.text(reason, "dim"), 2)
        for key, expected, said in rows_of(result):
            answer = f"expected {expected}, said {said}" if expected else said
            sheet.prose(sheet.fit(answer, 2 * _ANSWER_LINES * sheet.width), 2, f"{key + ':':<{_KEY_WIDTH + 1}}")


def _scores(counts: Score, sheet: Sheet) -> None:
    for title, rows in (
        ("strategy", counts.by_strategy),
        ("category", counts.by_category),
        ("confidence", counts.by_confidence),
    ):
        if not rows:
            continue
        sheet.console.print()
        columns = {title: max(map(len, [title, *(row.name for row in rows)]))}
        columns |= {name: max(len(name), 4) for name in FIGURES}
        table = sheet.table(columns)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in (*rows, counts.total):
            style = "bold" if row is counts.total else ""
            table.add_row(sheet.text(clean(row.name), style), *(sheet.text(text, style) for text in figures(row)))
        sheet.put(table)
