"""Reads the log lines around an event again, to show them as the log has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from logforensics.buffer import LogBuffer
from logforensics.model import Event
from logforensics.sources import Source

Excerpt = list[tuple[int, str]]

LINES_BEFORE, LINES_AFTER = 3, 2
_MOST_TEXT = 2000


def read_excerpts(events: Iterable[Event], sources: list[Source]) -> dict[int, Excerpt]:
    """Return for each event its line and a few around it, as (line number, text), keyed by event id.

    A source that cannot be read any more gives no excerpt. Overlong lines are cut.
    """
    paths = {source.name: source.path for source in sources}
    by_source: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_source[event.source].append(event)
    found: dict[int, Excerpt] = {}
    for name, group in by_source.items():
        if name not in paths:
            continue
        try:
            with LogBuffer(paths[name]) as buffer:
                for event in group:
                    found[event.event_id] = _around(buffer, event)
        except OSError:
            continue
    return found


def _around(buffer: LogBuffer, event: Event) -> Excerpt:
    start, end = buffer.line_bounds(event.offset)
    before = list(buffer.lines_before(start, LINES_BEFORE))[::-1]
    after = list(buffer.lines_after(end, LINES_AFTER + (event.end_line - event.line)))
    first = event.line - len(before)
    return [
        (first + place, buffer.text(begin, stop).rstrip("\r\n")[:_MOST_TEXT])
        for place, (begin, stop) in enumerate([*before, (start, end), *after])
    ]
