"""Sorts the timeline into what the rules ask for: who failed, who waited, who was doing what, who is gone."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from logforensics.clock import SECOND
from logforensics.correlate.recorder import GroupState
from logforensics.identity import Identity
from logforensics.model import Event
from logforensics.timeline import issue_time

# Progress counters of these rows say how far the training loop is; a bar over a dataset does not.
_TRAINING = {None, "training"}
# Signals that end a process by its own fault or by a killer, as opposed to an orderly stop.
_STOP_SIGNALS = {15, 2, 1}
# How shells and schedulers spell them.
_SIGNAL_WORDS = {
    "hangup": 1,
    "interrupt": 2,
    "illegal instruction": 4,
    "aborted": 6,
    "bus error": 7,
    "floating point exception": 8,
    "killed": 9,
    "segmentation fault": 11,
    "terminated": 15,
}
_MILD = {"I", "W", "INFO", "WARNING", "WARN"}
_BEFORE_US, _AFTER_US = 120 * SECOND, 900 * SECOND
_LOST_PEER = {"network", "exception", "teardown"}
# A rank may print a step or two behind a collective that its GPU has not done yet; not for longer than this.
_RUN_AHEAD_US = 60 * SECOND


@dataclass(slots=True)
class RankFacts:
    """Everything that is known of one rank, in timeline order."""

    rank: int
    events: list[Event] = field(default_factory=list)
    causes: list[Event] = field(default_factory=list)
    symptoms: list[Event] = field(default_factory=list)
    timeouts: list[Event] = field(default_factory=list)
    exits: list[Event] = field(default_factory=list)
    stopped: list[Event] = field(default_factory=list)
    progress: list[Event] = field(default_factory=list)
    activities: list[Event] = field(default_factory=list)
    status: Event | None = None  # the last line that counts enqueued and completed collectives
    kept_waiting: bool = False  # the flight recorder shows it in a collective that others did not join

    @property
    def last_step(self) -> int | None:
        """The last training step that this rank reported."""
        return next((e.fields["step"] for e in reversed(self.progress) if "step" in e.fields), None)

    @property
    def last_activity(self) -> Event | None:
        """The last line that says what this rank was doing, steps included."""
        own = [*self.activities[-1:], *self.progress[-1:]]
        return max(own, key=lambda e: e.event_id) if own else None

    @property
    def last_said(self) -> Event | None:
        """The last thing that this rank itself wrote."""
        return next((e for e in reversed(self.events) if wrote(e)), None)

    @property
    def exit_code(self) -> int | None:
        """The exit code that a launcher reported, negative for a signal."""
        return next((code for e in self.exits if (code := exit_code_of(e)) is not None), None)

    @property
    def lost_peer(self) -> list[Event]:
        """The symptoms that show a connection to a peer that is gone (being told of a timeout is none)."""
        return [event for event in self.symptoms if event.kind in _LOST_PEER]

    @property
    def victim(self) -> bool:
        """Whether it shows another's failure: waited in vain or lost its peer."""
        return bool(self.timeouts or self.lost_peer or self.kept_waiting)


@dataclass(slots=True)
class Facts:
    """The timeline of one attempt, sorted. ``world_size`` is what the logs announce, else None."""

    events: list[Event]
    identity: Identity
    world_size: int | None
    ranks: dict[int, RankFacts] = field(default_factory=dict)
    causes: list[Event] = field(default_factory=list)
    symptoms: list[Event] = field(default_factory=list)
    timeouts: list[Event] = field(default_factory=list)
    pointers: list[Event] = field(default_factory=list)
    exits: list[Event] = field(default_factory=list)
    teardowns: list[Event] = field(default_factory=list)
    progress: list[Event] = field(default_factory=list)
    activities: list[Event] = field(default_factory=list)
    finished: list[Event] = field(default_factory=list)
    recorder: list[Event] = field(default_factory=list)  # calls of the flight recorder's dumps
    recorded: list[GroupState] = field(default_factory=list)  # what these dumps say together

    @property
    def first_timeout(self) -> Event | None:
        """The first line that says that somebody waited in vain."""
        return self.timeouts[0] if self.timeouts else None

    @property
    def stall_start_us(self) -> int | None:
        """When the first stuck collective was issued: the timeout's time minus how long it ran."""
        starts = [start for event in self.timeouts if (start := issue_time(event)) is not None]
        return min(starts) if starts else None

    @property
    def seen(self) -> list[int]:
        """The ranks that some log speaks of."""
        return sorted(self.ranks)

    @property
    def expected(self) -> list[int]:
        """All ranks of the run, as far as its size is known; a rank shows that all below it exist."""
        return list(range(max(self.world_size or 0, max(self.ranks, default=-1) + 1)))

    def stopped_alive(self, rank: int) -> bool:
        """Whether a launcher had to stop this rank, so that it was alive until then.

        A launcher that says so of every rank (DeepSpeed's does) says nothing about any.
        """
        own = self.ranks.get(rank)
        return bool(own and own.stopped) and not all(other.stopped for other in self.ranks.values())

    @property
    def trained(self) -> bool:
        """Whether any rank got to a training step."""
        return any(is_training_step(event) for event in self.events)


def wrote(event: Event) -> bool:
    """Return whether the rank of an event wrote the line itself (and not a launcher about it)."""
    return event.stream not in {"launcher", "scheduler", "kernel", "flight_recorder", "config"} and not (
        event.role in {"pointer", "teardown"} and "mark" not in event.told
    )


def is_training_step(event: Event) -> bool:
    """Return whether an event shows a training step: a progress line, or a memory report that counts steps."""
    if event.role == "progress":
        return event.fields.get("activity") in _TRAINING and event.kind != "collective"
    return event.kind == "memory" and "step" in event.fields


def exit_code_of(event: Event) -> int | None:
    """Return the exit code that an event reports; a signal's number is negative, as Python has it."""
    code = event.fields.get("exitcode")
    if code is None:
        return -_signal_number(event) or None if event.kind == "exit" else None
    code = int(code)
    return 128 - code if 129 <= code <= 159 else code  # a shell's 137 is signal 9


def _signal_number(event: Event) -> int:
    """The number of the signal that an exit line names; 0 when it names none that is known."""
    name = str(event.fields.get("signal", ""))
    if name.isdecimal() and len(name) < 4:
        return int(name)
    if name in signal.Signals.__members__:
        return signal.Signals[name].value
    return _SIGNAL_WORDS.get(name.lower(), 0)


_MOST_DIGITS = 5  # of a rank; a longer number is none, and a range up to it would fill memory


def ranks_in(text: Any) -> list[int]:
    """Return the ranks of a list as logs print them: "4, 5", "[0-3]", "1 2"."""
    found: set[int] = set()
    for part in str(text).replace("[", " ").replace("]", " ").replace(",", " ").split():
        low, dash, high = part.partition("-")
        if low.isdecimal() and len(low) <= _MOST_DIGITS:
            if dash and high.isdecimal() and len(high) <= _MOST_DIGITS:
                found.update(range(int(low), int(high) + 1))
            else:
                found.add(int(low))
    return sorted(found)


def gather(events: list[Event], identity: Identity, recorded: list[GroupState] | None = None) -> Facts:
    """Sort the events of one attempt. They must be in timeline order. ``recorded`` is what its dumps say together."""
    facts = Facts(events, identity, identity.world_size, recorded=recorded or [])
    by_rank: dict[int, RankFacts] = {}
    stopped_pids: dict[int, list[Event]] = defaultdict(list)
    for event in _of_this_run(events):
        own = by_rank.setdefault(event.rank, RankFacts(event.rank)) if event.rank is not None else None
        if own:
            own.events.append(event)
        _sort(event, facts, own)
        if event.kind == "exit" and event.rank is None and "ranks" in event.fields and not identity.tasks_are_nodes:
            for rank in ranks_in(event.fields["ranks"]):  # "tasks 3,5: Aborted"
                by_rank.setdefault(rank, RankFacts(rank)).exits.append(event)
        if event.role == "teardown" and event.pid is not None:
            stopped_pids[event.pid].append(event)
    for rank, own in by_rank.items():
        pid = identity.rank_pid.get(rank)
        if pid is not None:
            own.stopped += [event for event in stopped_pids.get(pid, []) if event not in own.stopped]
    facts.ranks = by_rank
    facts.recorded = [state for state in facts.recorded if not _got_over(state, facts)]
    for state in facts.recorded:
        kept = [*state.agreed, *(state.waiting if state.absent and not state.crossed else ())]
        for rank in kept:
            if rank in by_rank:
                by_rank[rank].kept_waiting = True
    return facts


def _got_over(state: GroupState, facts: Facts) -> bool:
    """Whether what the dumps show as stuck was only slow: the logs show work or a good end long after it."""
    failed = facts.causes or facts.timeouts or facts.symptoms or any(exit_code_of(e) for e in facts.exits)
    ranks = set(state.entered)
    if not failed and any(event.rank in ranks or event.rank is None for event in facts.finished):
        return True
    calls = [e for e in facts.recorder if e.rank in ranks and e.role != "context" and e.time_us is not None]
    last = max(calls, key=lambda event: event.time_us or 0, default=None)
    return last is not None and any(
        event.rank in ranks
        and is_training_step(event)
        and event.time_us is not None
        and event.time_us - (last.time_us or 0) > _RUN_AHEAD_US + event.time_error_us + last.time_error_us
        for event in facts.progress
    )


def _of_this_run(events: list[Event]) -> list[Event]:
    """A machine's log covers days: what it says long before or after this run is about somebody else."""
    times = [e.time_us for e in events if e.time_us is not None and e.stream not in {"kernel", "scheduler"}]
    if not times:
        return events
    first, last = min(times) - _BEFORE_US, max(times) + _AFTER_US
    return [e for e in events if e.stream != "kernel" or e.time_us is None or first <= e.time_us <= last]


def _sort(event: Event, facts: Facts, own: RankFacts | None) -> None:
    role = event.role
    if event.stream == "flight_recorder":
        facts.recorder.append(event)
    elif role in {"cause", "either"}:
        facts.causes.append(event)
        if own:
            own.causes.append(event)
    elif role == "symptom" and facts.finished and event.kind != "timeout" and event.fields.get("severity") in _MILD:
        return  # a connection that ends when the work is done
    elif role == "symptom":
        target = (
            (facts.timeouts, own.timeouts if own else None)
            if event.kind == "timeout"
            else (
                facts.symptoms,
                own.symptoms if own else None,
            )
        )
        for kept in target:
            if kept is not None:
                kept.append(event)
    elif role == "pointer":
        facts.pointers.append(event)
        if event.kind == "exit":
            facts.exits.append(event)
            if own:
                own.exits.append(event)
    elif role == "teardown":
        facts.teardowns.append(event)
        if own and event.kind in {"signal", "teardown"}:
            own.stopped.append(event)
    elif role == "progress":
        facts.progress.append(event)
        if own:
            own.progress.append(event)
    if own and "enqueued" in event.fields and "completed" in event.fields and own.status is None:
        own.status = event  # the first snapshot: later ones are taken while things are being aborted
    if role in {"context", "progress"} and event.fields.get("activity"):
        facts.activities.append(event)
        if own:
            own.activities.append(event)
        if event.fields["activity"] == "finished" or event.fields.get("status") == "SUCCEEDED":
            facts.finished.append(event)


def orderly_stop(code: int | None) -> bool:
    """Return whether an exit code is that of a process that was told to stop."""
    return code is not None and -code in _STOP_SIGNALS


def distinct(ranks: Iterable[int | None]) -> list[int]:
    """Return the known ranks, each once, in order."""
    return sorted({rank for rank in ranks if rank is not None})
