"""Chooses events of a timeline by rank, kind, role and time."""

from __future__ import annotations

from collections.abc import Collection

from logforensics.clock import SECOND, parse_stamp
from logforensics.model import Event
from logforensics.sources import InputError


def select_events(
    events: list[Event],
    *,
    ranks: Collection[int] | None = None,
    kinds: Collection[str] | None = None,
    roles: Collection[str] | None = None,
    around: str | None = None,
    window_s: float = 60.0,
) -> list[Event]:
    """Return the events that fit every filter given, in their order.

    ``around`` is a time as logs write it; one without a date is meant on the day of the run's last event.
    Raises InputError when it is no time.
    """
    middle = _moment(around, events) if around else None
    reach = int(window_s * SECOND)
    return [
        event
        for event in events
        if (not ranks or event.rank in ranks)
        and (not kinds or event.kind in kinds)
        and (not roles or event.role in roles)
        and (middle is None or (event.time_us is not None and abs(event.time_us - middle) <= reach))
    ]


def _moment(text: str, events: list[Event]) -> int:
    last = max((event.time_us for event in events if event.time_us is not None), default=None)
    if last is None:
        raise InputError("no event of these logs has a time, so --around cannot be used")
    stamp = parse_stamp(text)
    if stamp is not None and (time := stamp.resolve(last)) is not None:
        return time
    clock = parse_stamp(f"2000-01-01 {text}")
    if clock is None:
        raise InputError(f"{text!r} is no time; write it like 19:11:05 or 2026-11-30 19:11:05")
    day = last - last % (86_400 * SECOND)
    return day + clock.second_of_day * SECOND + clock.microsecond
