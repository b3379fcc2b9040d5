"""A run that was started again is several incidents: one row an attempt, with when it ran and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logforensics.language import _
from logforensics.model import AttemptVerdict, Event
from logforensics.render.text import clean, clock_time, duration
from logforensics.wording import SURE


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt; ``event_id`` is its first evidence's, -1 when it has none."""

    number: int
    start: str
    lasted: str
    last_step: str
    events: int
    headline: str
    category: str
    confidence: str
    place: str
    event_id: int


def attempt_rows(attempts: Sequence[AttemptVerdict], events: Iterable[Event]) -> list[AttemptRow]:
    """Return the attempts in order; the list is empty for a run that was never restarted."""
    if len(attempts) < 2:
        return []
    counts = Counter(event.attempt for event in events)
    return [_row(attempt, counts[attempt.number]) for attempt in attempts]


def _row(attempt: AttemptVerdict, events: int) -> AttemptRow:
    start, end, told = attempt.start_us, attempt.end_us, attempt.evidence
    return AttemptRow(
        number=attempt.number,
        start=clock_time(start),
        lasted=duration((end - start) / 1e6) if start is not None and end is not None else "",
        last_step="" if attempt.last_step is None else str(attempt.last_step),
        events=events,
        headline=clean(attempt.headline),
        category=attempt.category,
        confidence=_(SURE[attempt.confidence]),
        place=clean(f"{told.source}:{told.line}") if told else "",
        event_id=told.event_id if told else -1,
    )
