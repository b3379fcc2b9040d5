"""Reads the log lines around an event again, to show them as the log has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import regex

from logforensics.buffer import LogBuffer
from logforensics.model import Event
from logforensics.sources import Source

Excerpt = list[tuple[int, str]]

LINES_BEFORE, LINES_AFTER = 3, 2
_MOST_TEXT = 2000
_WORDS = 8  # so many words of a message find it in its line


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
    texts = [_last_shown(buffer, *bounds) for bounds in before]
    texts.append(_shown_at(buffer, start, end, _place_of(buffer, start, end, event)))
    texts += [_last_shown(buffer, *bounds) for bounds in after]
    return list(enumerate(texts, event.line - len(before)))


def _place_of(buffer: LogBuffer, start: int, end: int, event: Event) -> int:
    """Return where in its line an event's message begins: a line may be a progress bar of megabytes before it."""
    words = (regex.escape(word.encode()) for word in event.message.split()[:_WORDS])
    found = regex.search(rb"\s+".join(words), buffer.data, pos=start, endpos=end)
    return found.start() if found else start


def _shown_at(buffer: LogBuffer, start: int, end: int, place: int) -> str:
    """Return the text between the carriage returns around ``place``, cut to a readable length."""
    left = max(start, buffer.data.rfind(b"\r", start, place) + 1)
    right = buffer.data.find(b"\r", place, end)
    right = end if right < 0 else right
    if place - left > _MOST_TEXT // 2:
        left = place - _MOST_TEXT // 4
    return buffer.text(left, right).rstrip("\r\n")[:_MOST_TEXT]


def _last_shown(buffer: LogBuffer, start: int, end: int) -> str:
    """Return what a terminal would still show of a line in the end."""
    if end > start and buffer.data[end - 1 : end] == b"\r":
        end -= 1
    return _shown_at(buffer, start, end, max(start, buffer.data.rfind(b"\r", start, end) + 1))
