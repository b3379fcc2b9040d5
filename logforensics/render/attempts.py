"""A restarted run is several incidents: one row an attempt, with when it ran and what failed first in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logforensics.model import Event
from logforensics.render.text import clean, clock_time, duration, without_folders

_FAILURES = ("cause", "either")


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt; ``event_id`` is its first failure line's, -1 when it has none."""

    number: int
    start: str
    lasted: str
    events: int
    failure: str
    rank: str
    category: str
    place: str
    event_id: int


def attempt_rows(events: Iterable[Event]) -> list[AttemptRow]:
    """Return the attempts in order; the list is empty for a run that was never restarted."""
    attempts: dict[int, list[Event]] = {}
    for event in events:
        attempts.setdefault(event.attempt, []).append(event)
    if len(attempts) < 2:
        return []
    return [_row(number, attempts[number]) for number in sorted(attempts)]


def _row(number: int, events: list[Event]) -> AttemptRow:
    times = [event.time_us for event in events if event.time_us is not None]
    failure = next((event for role in _FAILURES for event in events if event.role == role), None)
    return AttemptRow(
        number=number,
        start=clock_time(min(times)) if times else "",
        lasted=duration((max(times) - min(times)) / 1e6) if times else "",
        events=len(events),
        failure=clean(without_folders(failure.message)) if failure else "",
        rank="" if failure is None or failure.rank is None else str(failure.rank),
        category=(failure.category or "") if failure else "",
        place=clean(f"{failure.source}:{failure.line}") if failure else "",
        event_id=failure.event_id if failure else -1,
    )
