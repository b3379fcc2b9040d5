"""Turns the calls of flight recorder dumps that matter into events of the timeline, on the run's clock.

The recorder stamps its calls with the wall clock in UTC, to the nanosecond; logs mostly have local time without a
zone, which is the run's clock here. The whole half hours between the two are found from what both tell of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from logforensics.callsites import activity_of
from logforensics.clock import SECOND, Stamp
from logforensics.flight_recorder import Call, Dump
from logforensics.model import Event
from logforensics.reader import RawEvent, Reading
from logforensics.records import place_in_code
from logforensics.sources import Source

WAITING, OTHER, LAST = "flight_recorder/waiting", "flight_recorder/other-call", "flight_recorder/last-call"
DUMP = "flight_recorder/dump"
_ROLES = {WAITING: "symptom", OTHER: "pointer", LAST: "context"}
_SAID = {
    WAITING: "waits in",
    OTHER: "called something else than the others:",
    LAST: "last call that ended:",
}

_ZONE_STEP_US = 1800 * SECOND
_MOST_ZONE_US = 14 * 3600 * SECOND
_SAME_MOMENT_US = 60 * SECOND
_SAME_END_US = 600 * SECOND
_WRITE_US = 1000  # between the call and its stamp
# Nothing but a large doubt tells the order of what cannot be placed on the run's clock.
_UNPLACED_US = _MOST_ZONE_US


def reading_of(source: Source, dump: Dump, told: Iterable[tuple[Call, str]], shift: tuple[int, int]) -> Reading:
    """Return a dump's events: the dump itself, then the ``told`` calls with what each of them is.

    ``shift`` is what to add to the recorder's times, and the doubt of it, in microseconds.
    """
    events = [_dump_event(dump)]
    seen: set[int] = set()
    for call, signature in told:
        if call.number not in seen:
            seen.add(call.number)
            events.append(_call_event(dump, call, signature, shift))
    events.sort(key=lambda raw: raw.event.offset)
    return Reading(source, events, hit_lines=len(events), dump=dump)


def _event(dump: Dump, number: int, kind: str, signature: str, role: str, message: str) -> Event:
    return Event(
        source=dump.source,
        line=number,
        end_line=number,
        offset=number,
        kind=kind,
        signature=signature,
        role=role,
        message=message,
        stream="flight_recorder",
        attempt=dump.attempt or 0,
        node=dump.host,
        rank=dump.rank,
    )


def _dump_event(dump: Dump) -> RawEvent:
    groups = len({call.group for call in dump.calls})
    event = _event(
        dump,
        0,
        "init",
        DUMP,
        "context",
        f"flight recorder dump (version {dump.version or 'unknown'}): {len(dump.calls):,} calls in {groups} groups",
    )
    event.line = event.end_line = 1
    if dump.size_seen:
        event.fields["world_size"] = dump.size_seen
    if dump.library:
        event.fields.update(name="nccl", version=dump.library)
    return RawEvent(event)


def _call_event(dump: Dump, call: Call, signature: str, shift: tuple[int, int]) -> RawEvent:
    frames = call.frames
    given, taken = call.elements
    types = "/".join(sorted(call.types))
    name = f"{call.operation} {call.target}".strip()
    where = place_in_code(frames)
    parts = [f"{_SAID[signature]} {name} number {call.sequence} of {call.group.label}"]
    if given or taken:
        parts.append(f"{max(given, taken):,} {types or 'elements'}")
    if state := _state_words(call):
        parts.append(state)
    if where:
        parts.append(f"called at {where}")
    event = _event(dump, call.number, "collective", signature, _ROLES[signature], "; ".join(parts))
    event.process_group, event.sequence, event.operation = call.group.label, call.sequence, name
    event.fields = {"state": call.state, "retired": call.retired, "numel_in": given, "numel_out": taken}
    if types:
        event.fields["dtype"] = types
    if where:
        event.fields["where"] = where
    if activity := activity_of(frames):
        event.fields["activity"] = activity
    if call.timeout_ms:
        event.fields["limit_ms"] = call.timeout_ms
    return RawEvent(event, stamp=_stamp(call.created_us, shift))


def _state_words(call: Call) -> str:
    """How far the call got; gloo does not say."""
    if call.state == "completed":
        return "completed"
    if not call.retired:
        return call.state
    return f"{call.state}, then given up" if call.backend == "nccl" else ""


def _stamp(time_us: int | None, shift: tuple[int, int]) -> Stamp | None:
    if time_us is None:
        return None
    seconds, microsecond = divmod(time_us + shift[0], SECOND)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a number that is no time
        return None
    second_of_day = moment.hour * 3600 + moment.minute * 60 + moment.second
    return Stamp(moment.year, moment.month, moment.day, second_of_day, microsecond, _WRITE_US + shift[1], 0)


# -- two clocks --------------------------------------------------------------------------------------------------


def shift_to_run(logs: list[Reading], dumps: list[Dump]) -> tuple[int, int]:
    """Return what to add to the recorder's times to get the logs' clock, and its doubt, in microseconds."""
    newest = max((call.created_us or 0 for dump in dumps for call in dump.calls[-1:]), default=0)
    if not newest:
        return 0, 0
    told = _by_timeouts(logs, dumps, newest)
    if told is not None:
        return told, 0
    ends = [time for log in logs if log.last_stamp and (time := log.last_stamp.resolve(newest)) is not None]
    if not ends:
        return 0, 0
    waited = max(
        (call.timeout_ms or 0 for dump in dumps for call in dump.calls[-1:] if call.state != "completed"), default=0
    )
    apart = max(ends) - newest
    # the dump comes when the wait is over, or at any moment of it
    if -_SAME_END_US <= apart <= waited * 1000 + _SAME_END_US:
        return 0, 0
    apart -= waited * 1000
    steps = round(apart / _ZONE_STEP_US) * _ZONE_STEP_US
    if abs(steps) <= _MOST_ZONE_US and abs(apart - steps) <= _SAME_END_US:
        return steps, _SAME_END_US
    return 0, _UNPLACED_US


def _by_timeouts(logs: list[Reading], dumps: list[Dump], newest: int) -> int | None:
    """A watchdog's line says when its collective was issued; the recorder has the same moment."""
    issued: dict[tuple[int, str], int] = {}
    for dump in dumps:
        for call in dump.calls:
            if call.created_us and not call.p2p:
                issued[call.sequence, call.operation] = call.created_us
    votes: Counter[int] = Counter()
    for log in logs:
        for raw in log.events:
            event = raw.event
            waited = event.fields.get("elapsed_ms") or event.fields.get("timeout_ms")
            if event.kind != "timeout" or raw.stamp is None or not waited or event.sequence is None:
                continue
            time, start = raw.stamp.resolve(newest), issued.get((event.sequence, event.operation or ""))
            if time is None or start is None:
                continue
            apart = time - int(waited) * 1000 - start
            steps = round(apart / _ZONE_STEP_US) * _ZONE_STEP_US
            if abs(apart - steps) <= _SAME_MOMENT_US and abs(steps) <= _MOST_ZONE_US:
                votes[steps] += 1
    return votes.most_common(1)[0][0] if votes else None
