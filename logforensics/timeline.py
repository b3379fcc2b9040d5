"""Puts all events of a run on one clock and in one order, and gives them as the polars frame of the API.

The order is causal reading order: inside one writer's file the file's order, between files the time.
Times that a log did not write are derived (a timeout's line minus what it waited) or bracketed by the
stamps around them, and say so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from logforensics.clock import SECOND, Stamp
from logforensics.model import CATEGORIES, KINDS, ROLES, STREAMS, TIME_BASES, Event
from logforensics.node_clocks import Offset, align_clocks
from logforensics.stacked import mark_sections

if TYPE_CHECKING:
    import polars as pl

    from logforensics.reader import RawEvent, Reading

# A line between two stamps that are further apart than this happened near the earlier one or near the later
# one; nobody knows. The earlier is taken, as a bound.
_WIDE_GAP_US = 120 * SECOND
_ZONES_US = 86_400 * SECOND
_NEVER = -(1 << 62)


def build_timeline(readings: list[Reading], corrected: list[Offset] | None = None) -> list[Event]:
    """Give every event its time and its place in the order; returns them ordered, ``event_id`` set.

    ``corrected`` gets the nodes' clocks that were found to be off.
    """
    for reading in readings:
        mark_sections([raw.event for raw in reading.events])
    offsets = _place_all(readings)
    if corrected is not None:
        corrected += offsets
    return _order(readings)


def _place_all(readings: list[Reading]) -> list[Offset]:
    """Give every event its time on the run's common clock, in place; returns how far nodes' clocks were off."""
    common = _known_time([raw for reading in readings for raw in reading.events])
    for reading in readings:
        own = _known_time(reading.events)
        reference = next((time for time in (own, common) if time is not None), reading.source.mtime_us)
        # the file's own time, where nothing else tells the year: it was written before that, give or take a zone
        latest = reading.source.mtime_us + _ZONES_US if own is None and common is None else None
        near = reference
        for raw in reading.events:
            # a time of day without a date is the one next to what stands above it
            _place_in_time(raw, reference if _dated(raw) else near, latest)
            near = near if raw.event.time_us is None else raw.event.time_us
    return align_clocks(readings)


def _order(readings: list[Reading]) -> list[Event]:
    """Return all events in causal reading order, ``event_id`` set. They must have their times."""
    keyed: list[tuple[int, int, int, Event]] = []
    for number, reading in enumerate(readings):
        latest: dict[tuple[int, int | None], int] = {}
        carried: dict[int, int] = {}
        for raw in reading.events:
            event = raw.event
            writer = (event.section, event.rank)
            # a launcher's tee mixes writers out of order: only one writer's own order is certain
            floor = latest.get(writer, carried.get(event.section, _NEVER) if event.time_us is None else _NEVER)
            effective = floor if event.time_us is None else max(floor, event.time_us)
            latest[writer] = effective
            carried[event.section] = max(carried.get(event.section, _NEVER), effective)
            keyed.append((effective, number, event.offset, event))
    keyed.sort(key=lambda item: item[:3])
    events = [item[3] for item in keyed]
    for event_id, event in enumerate(events):
        event.event_id = event_id
    return events


def _dated(raw: RawEvent) -> bool:
    return all(stamp.dated for stamp in (raw.stamp, raw.before, raw.after) if stamp is not None)


def _known_time(items: list[RawEvent]) -> int | None:
    """Return a moment in the middle of those that were stamped with a year; stamps without one are near it."""
    times = [
        time
        for raw in items
        if raw.stamp is not None and raw.stamp.year is not None and (time := raw.stamp.resolve(0)) is not None
    ]
    return sorted(times)[len(times) // 2] if times else None


def _place_in_time(raw: RawEvent, reference: int, latest: int | None) -> None:
    event = raw.event
    if raw.stamp is not None:
        event.time_us = raw.stamp.resolve(reference, latest)
        event.time_error_us = raw.stamp.error_us
        event.time_basis = "stamped" if event.time_us is not None else "none"
        return
    before = _resolved(raw.before, reference, latest)
    after = _resolved(raw.after, reference, latest)
    if before is None and after is None:
        return
    if before is not None and (waited := _waited_us(event)):
        bound = after if after is not None and after >= before and not raw.loose else None
        least = before + waited
        event.time_us = least if bound is None else min(least, bound)
        event.time_error_us = _WIDE_GAP_US // 2 if bound is None else min(abs(bound - least), bound - before)
        event.time_basis = "derived"
        return
    event.time_basis = "bracketed"
    if before is not None and after is not None and after >= before:
        gap = after - before
        event.time_us = before + gap // 2 if gap <= _WIDE_GAP_US else before
        event.time_error_us = gap // 2 if gap <= _WIDE_GAP_US else gap
    else:
        event.time_us = before if before is not None else after
        event.time_error_us = _WIDE_GAP_US // 2


def _waited_us(event: Event) -> int:
    """How long a timeout waited: that long after the last thing that its writer said it came, if it has no stamp."""
    if event.kind != "timeout":
        return 0
    return int(event.fields.get("elapsed_ms") or event.fields.get("timeout_ms") or 0) * 1000


def _resolved(stamp: Stamp | None, reference: int, latest: int | None) -> int | None:
    return stamp.resolve(reference, latest) if stamp is not None else None


def issue_time(event: Event) -> int | None:
    """Return when the collective that timed out was issued: the line's time minus how long it ran."""
    waited = event.fields.get("elapsed_ms") or event.fields.get("timeout_ms")
    return event.time_us - int(waited) * 1000 if event.time_us is not None and waited else None


def to_frame(events: list[Event]) -> pl.DataFrame:
    """Return the timeline as a polars frame, one row an event, with the columns of the README's table.

    ``fields`` is a JSON text; ``time`` is datetime[us, UTC].
    """
    import polars as pl

    columns = {
        "event_id": pl.Series([e.event_id for e in events], dtype=pl.UInt32),
        "source": pl.Series([e.source for e in events], dtype=pl.Categorical),
        "line": pl.Series([e.line for e in events], dtype=pl.UInt64),
        "end_line": pl.Series([e.end_line for e in events], dtype=pl.UInt64),
        "offset": pl.Series([e.offset for e in events], dtype=pl.UInt64),
        "attempt": pl.Series([e.attempt for e in events], dtype=pl.Int16),
        "node": pl.Series([e.node for e in events], dtype=pl.Categorical),
        "rank": pl.Series([e.rank for e in events], dtype=pl.Int32),
        "local_rank": pl.Series([e.local_rank for e in events], dtype=pl.Int16),
        "pid": pl.Series([e.pid for e in events], dtype=pl.Int64),
        "stream": pl.Series([e.stream for e in events], dtype=pl.Enum(STREAMS)),
        "time": pl.Series([e.time_us for e in events], dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
        "time_basis": pl.Series([e.time_basis for e in events], dtype=pl.Enum(TIME_BASES)),
        "time_error_us": pl.Series([e.time_error_us for e in events], dtype=pl.Int64),
        "kind": pl.Series([e.kind for e in events], dtype=pl.Enum(KINDS)),
        "signature": pl.Series([e.signature for e in events], dtype=pl.Categorical),
        "role": pl.Series([e.role for e in events], dtype=pl.Enum(ROLES)),
        "category": pl.Series([e.category for e in events], dtype=pl.Enum(CATEGORIES)),
        "process_group": pl.Series([e.process_group for e in events], dtype=pl.String),
        "sequence": pl.Series([e.sequence for e in events], dtype=pl.Int64),
        "operation": pl.Series([e.operation for e in events], dtype=pl.String),
        "message": pl.Series([e.message for e in events], dtype=pl.String),
        "fields": pl.Series([json.dumps(e.fields, sort_keys=True, default=str) for e in events], dtype=pl.String),
        "repeats": pl.Series([e.repeats for e in events], dtype=pl.UInt32),
    }
    return pl.DataFrame(columns)
