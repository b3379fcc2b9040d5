"""The events of a run as a table in the terminal, for the ``timeline`` command."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from logforensics.model import Event
from logforensics.render.sheet import Sheet
from logforensics.render.text import clean, clock_time, counted, day

_WIDE = 130
_STYLES = {"cause": "bold", "either": "bold", "noise": "dim", "progress": "dim", "context": "dim"}


def print_timeline(events: Sequence[Event], console: Console) -> None:
    """Print events as a table, one row each, in the order given; "~" marks a time that no line states."""
    sheet = Sheet(console)
    if not events:
        sheet.prose("No event passes the filters.")
        return
    days = {text for event in events if (text := day(event.time_us))}
    wide = sheet.width >= _WIDE
    dated = len(days) > 1 and wide
    columns = {
        "id": max(2, *(len(str(event.event_id)) for event in events)),
        "time": 24 if dated else 13,
        "rank": max(4, *(len(str(event.rank)) for event in events if event.rank is not None), 0),
        "kind": 10,
        **({"role": 8} if wide else {}),
        "what": 0,
        **({"where": min(max(len(_place(event)) for event in events), sheet.width // 3)} if wide else {}),
    }
    table = sheet.table(columns)
    last_day = ""
    for event in events:
        today = day(event.time_us)
        if len(days) > 1 and not dated and today and today != last_day:
            table.add_row("", sheet.text(today, "bold"))
        last_day = today or last_day
        cells = _cells(event, sheet, columns, dated)
        table.add_row(*(cells[name] for name in columns))
    sheet.put(table)
    when = f" on {next(iter(days))}" if len(days) == 1 else ""
    sheet.prose(f"{counted(len(events), 'event')}{when}. A time with ~ is derived: no stamp is on the line itself.")


def _place(event: Event) -> str:
    return clean(f"{event.source}:{event.line}")


def _cells(event: Event, sheet: Sheet, columns: dict[str, int], dated: bool) -> dict[str, Text]:
    moment = clock_time(event.time_us)
    mark = "~" if moment and event.time_basis != "stamped" else " " if moment else ""
    date = f"{day(event.time_us)} " if dated and moment else ""
    wide = "where" in columns
    room = columns["what"]
    times = f" (x{event.repeats:,})" if event.repeats > 1 else ""
    message = sheet.fit(clean(event.message), 3 * room - len(times), keep_end=False) + times
    what = Text(message, style="bold" if event.role in {"cause", "either"} else "")
    if not wide:
        what.append("\n" + sheet.fit(_place(event), room), "dim not bold")
    style = _STYLES.get(event.role, "")
    return {
        "id": sheet.text(str(event.event_id), "dim"),
        "time": sheet.text(mark + date + moment, "dim"),
        "rank": sheet.text("" if event.rank is None else str(event.rank)),
        "kind": sheet.text(event.kind if wide else f"{event.kind}\n{event.role}", style),
        "role": sheet.text(event.role, style),
        "what": what,
        "where": sheet.text(sheet.fit(_place(event), columns.get("where", room)), "cyan"),
    }
