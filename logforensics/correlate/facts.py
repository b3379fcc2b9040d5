"""Sorts the timeline into what the rules ask for: who failed, who waited, who was doing what, who is gone."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from logforensics.identity import Identity
from logforensics.model import Event
from logforensics.timeline import issue_time

# Progress counters of these rows say how far the training loop is; a bar over a dataset does not.
_TRAINING = {None, "training"}
# Signals that end a process by its own fault or by a killer, as opposed to an orderly stop.
_STOP_SIGNALS = {15, 2, 1}
_LOST_PEER = {"network", "exception", "teardown"}


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
        return bool(self.timeouts or self.lost_peer)


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
        """All ranks of the run, as far as its size is known."""
        return sorted(set(self.ranks) | set(range(self.world_size or 0)))

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
    return event.stream not in {"launcher", "scheduler", "kernel"} and not (
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
    if name.isdigit():
        return int(name)
    return signal.Signals[name].value if name in signal.Signals.__members__ else 0


def ranks_in(text: Any) -> list[int]:
    """Return the ranks of a list as logs print them: "4, 5", "[0-3]", "1 2"."""
    found: set[int] = set()
    for part in str(text).replace("[", " ").replace("]", " ").replace(",", " ").split():
        low, dash, high = part.partition("-")
        if low.isdigit():
            if dash and high.isdigit() and int(high) - int(low) < 100_000:
                found.update(range(int(low), int(high) + 1))
            else:
                found.add(int(low))
    return sorted(found)


def gather(events: list[Event], identity: Identity) -> Facts:
    """Sort the events of one attempt. They must be in timeline order."""
    facts = Facts(events, identity, identity.world_size)
    by_rank: dict[int, RankFacts] = {}
    stopped_pids: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        own = by_rank.setdefault(event.rank, RankFacts(event.rank)) if event.rank is not None else None
        if own:
            own.events.append(event)
        _sort(event, facts, own)
        if event.role == "teardown" and event.pid is not None:
            stopped_pids[event.pid].append(event)
    for rank, own in by_rank.items():
        pid = identity.rank_pid.get(rank)
        if pid is not None:
            own.stopped += [event for event in stopped_pids.get(pid, []) if event not in own.stopped]
    facts.ranks = by_rank
    return facts


def _sort(event: Event, facts: Facts, own: RankFacts | None) -> None:
    role = event.role
    if role in {"cause", "either"}:
        facts.causes.append(event)
        if own:
            own.causes.append(event)
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
        if event.fields["activity"] == "finished":
            facts.finished.append(event)


def orderly_stop(code: int | None) -> bool:
    """Return whether an exit code is that of a process that was told to stop."""
    return code is not None and -code in _STOP_SIGNALS


def distinct(ranks: Iterable[int | None]) -> list[int]:
    """Return the known ranks, each once, in order."""
    return sorted({rank for rank in ranks if rank is not None})
