"""Numbers the attempts of a run that was started again, where several of them are in one log.

torchelastic starts its workers again after a failure (``--max-restarts``), schedulers requeue a job and append to the
same file, shells loop. torchelastic says so only at level INFO, so most logs just go on with new processes: a launcher
that reports another end of the same rank, a rank with another pid, a start that was already made, steps that begin
again. Source: pytorch/pytorch torch/distributed/elastic/agent/server/api.py (``_invoke_run``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from logforensics.model import Event

_STARTS = {"launch", "init", "rendezvous", "training"}
_OUTSIDE = {"launcher", "scheduler", "kernel"}
_TRAINING = {None, "training"}
# A failure's message may state the pid of a helper, a DataLoader's worker say; what these state is the rank's own.
_ABOUT_A_RANK = {"pointer", "teardown", "context"}
# An uncaught exception alone is no end that a launcher saw: so many starts must then be made a second time.
_STARTS_AGAIN = 2


@dataclass(slots=True)
class _Border:
    """Where an attempt begins in one file: the offset of its first line, its number if the log tells, its time."""

    offset: int
    number: int | None
    time_us: int | None


@dataclass(slots=True)
class _Attempt:
    """What one file has shown of the attempt that is being read."""

    number: int = 0
    starts: set[tuple[str, int | None]] = field(default_factory=set)
    again: set[tuple[str, int | None]] = field(default_factory=set)
    steps: dict[tuple[str, int | None], int] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)  # ranks whose end was reported
    raised: Event | None = None  # the last uncaught exception
    ended: Event | None = None  # the last line with which a launcher or a scheduler reports an end


def number_attempts(events: Sequence[Event], settled: Iterable[str] = ()) -> None:
    """Set ``Event.attempt`` in place; "attempt" in ``told`` marks the events whose attempt is known.

    ``events`` are a run's, in causal reading order. Those of the sources in ``settled`` have their number from their
    path and keep it. What stands in a file without any border, a kernel's log perhaps, goes by its time.
    """
    logs: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        logs[event.source, event.section].append(event)
    known = set(settled)
    begun: dict[int, list[int]] = defaultdict(list)
    undivided: list[list[Event]] = []
    for (source, _section), own in logs.items():
        if source in known:
            _begun_by_path(own, begun)
            continue
        own.sort(key=lambda event: event.offset)
        borders = _borders(own)
        if borders:
            _set(own, borders, begun)
        else:
            undivided.append(own)
    if begun:
        starts = sorted((min(times), number) for number, times in begun.items())
        for own in undivided:
            for event in own:
                if event.time_us is not None and event.stream != "config":
                    event.attempt = max((number for start, number in starts if start < event.time_us), default=0)
                    event.told.add("attempt")


def _begun_by_path(own: list[Event], begun: dict[int, list[int]]) -> None:
    times = [event.time_us for event in own if event.time_us is not None]
    if times and own[0].attempt > 0:
        begun[own[0].attempt].append(min(times) - 1)


def _set(own: list[Event], borders: list[_Border], begun: dict[int, list[int]]) -> None:
    number = 0
    place = 0
    for event in own:
        while place < len(borders) and borders[place].offset <= event.offset:
            border = borders[place]
            number = number + 1 if border.number is None else border.number
            if border.time_us is not None:
                begun[number].append(border.time_us)
            place += 1
        event.attempt = number
        event.told.add("attempt")


def _borders(own: list[Event]) -> list[_Border]:
    """Return where attempts begin in one file, from its events in file order."""
    borders: list[_Border] = []
    now = _Attempt()
    for place, event in enumerate(own):
        number = _announced(event)
        if number is not None and number > now.number:
            # what a launcher announces is still its own line of the attempt that failed
            borders.append(_Border(event.offset + 1, number, event.time_us))
            now = _Attempt(number)
            continue
        if _is_again(event, now, own, place):
            last = now.ended or now.raised
            assert last is not None
            borders.append(_Border(last.offset + 1, None, last.time_us))
            now = _Attempt(now.number + 1)
            for earlier in own[:place]:
                if earlier.offset > last.offset:
                    _note(earlier, now)
        _note(event, now)
    return borders


def _announced(event: Event) -> int | None:
    """The number of the attempt that a line announces: the agent's, or the restart count of a rendezvous."""
    fields = event.fields
    if fields.get("activity") == "restart":
        left, allowed = str(fields.get("value", "")), str(fields.get("other_value", ""))
        return int(allowed) - int(left) + 1 if left.isdecimal() and allowed.isdecimal() else None
    if fields.get("activity") == "rendezvous" and event.kind == "init" and "ranks" in fields:
        restart = fields.get("restart")
        return int(restart) if restart is not None else None
    return None


def _is_again(event: Event, now: _Attempt, own: list[Event], place: int) -> bool:
    """Whether an event shows that what it tells of is another life of the run than what stands above it."""
    last = now.ended or now.raised
    if last is None or _stamped_earlier(event, last):
        return False
    if event.rank is not None and _tells_pid(event) and now.pids.get(event.rank, event.pid) != event.pid:
        return True
    key = (event.signature, event.rank)
    if _is_step(event):
        return now.ended is not None and event.fields["step"] < now.steps.get(key, -1)
    if not _is_start(event):
        return False
    if now.ended is not None:
        return key in now.starts or event.rank in now.gone
    if key not in now.starts:
        return False
    now.again.add(key)
    return len(now.again) >= _STARTS_AGAIN and not _goes_on(now, own[place:])


def _stamped_earlier(event: Event, last: Event) -> bool:
    """Whether stamps say that an event came before the end above it: then logs were put together."""
    if event.time_us is None or last.time_us is None or event.time_basis != "stamped":
        return False
    return event.time_us + event.time_error_us < last.time_us - last.time_error_us


def _goes_on(now: _Attempt, behind: list[Event]) -> bool:
    """Whether the steps behind an exception count on where those before it ended: then it was caught."""
    for event in behind:
        key = (event.signature, event.rank)
        if _is_step(event) and key in now.steps:
            return bool(event.fields["step"] > now.steps[key])
    return False


def _note(event: Event, now: _Attempt) -> None:
    key = (event.signature, event.rank)
    if _is_start(event):
        now.starts.add(key)
    if _is_step(event):
        now.steps[key] = max(event.fields["step"], now.steps.get(key, -1))
    if event.rank is not None and event.pid is not None and _tells_pid(event):
        now.pids[event.rank] = event.pid
    if event.fields.get("raised") and event.role in {"cause", "either", "symptom"}:
        now.raised = event
    if _is_end(event):
        now.ended = event
        if event.rank is not None:
            now.gone.add(event.rank)


def _tells_pid(event: Event) -> bool:
    return event.pid is not None and "pid" in event.told and event.role in _ABOUT_A_RANK


def _is_start(event: Event) -> bool:
    return event.role == "context" and event.kind in {"init", "notice"} and event.fields.get("activity") in _STARTS


def _is_step(event: Event) -> bool:
    return event.role == "progress" and "step" in event.fields and event.fields.get("activity") in _TRAINING


def _is_end(event: Event) -> bool:
    """Whether somebody outside reports that a process, or the job, has ended otherwise than well."""
    if event.kind == "exit" and event.role == "pointer":
        return str(event.fields.get("exitcode", "1")) != "0"
    if event.role == "teardown" and event.kind == "exception":
        return True
    return event.stream in _OUTSIDE and event.category == "preempted"
