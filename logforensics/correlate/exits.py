"""Failures that only an exit code tells of: killed, crashed in native code, gone without a word."""

from __future__ import annotations

from itertools import pairwise

from logforensics.correlate.facts import Facts, RankFacts, exit_code_of
from logforensics.correlate.incident import Incident
from logforensics.language import _
from logforensics.model import Event

# Growth of the reported host memory that makes a later SIGKILL look like the kernel's.
_GROWTH = 1.2

# Ray knows that a process is gone, and no more.
_DIED = {"SYSTEM_ERROR"}
_CRASH = {11: "segfault", 4: "segfault", 8: "segfault", 7: "segfault"}


def find_exits(facts: Facts) -> list[Incident]:
    """Return an incident for each rank whose exit code shows a failure that nothing else explains."""
    incidents: list[Incident] = []
    for rank, own in sorted(facts.ranks.items()):
        if any(cause.category != "unknown_exit" for cause in own.causes):
            continue
        if own.exit_code is None:
            died = [event for event in own.exits if event.fields.get("status") in _DIED]
            if died and not own.victim:
                incidents.append(_died(rank, died, own))
            continue
        incident = _of_rank(rank, own, facts)
        if incident:
            incidents.append(incident)
    nameless = _nameless(facts)
    if nameless:
        incidents.append(nameless)
    first = _first_reported(facts)
    incidents.sort(key=lambda item: (item.ranks != [first], item.tier, item.first.event_id))
    return incidents


def _died(rank: int, told: list[Event], own: RankFacts) -> Incident:
    said = [own.last_said] if own.last_said else []
    return Incident(
        "unknown_exit",
        [*told, *said],
        [rank],
        "died-without-a-code",
        why=[_("the process of rank {rank} died; nothing says of what").format(rank=rank)],
        confidence="medium",
    )


def _first_reported(facts: Facts) -> int | None:
    return next((e.rank for e in facts.exits if exit_code_of(e) not in {None, 0, -15} and e.rank is not None), None)


def _evidence(own: RankFacts) -> list[Event]:
    told = [event for event in own.exits if exit_code_of(event) is not None]
    said = [own.last_said] if own.last_said else []
    return told + [event for event in said if event is not None]


def _of_rank(rank: int, own: RankFacts, facts: Facts) -> Incident | None:
    code = own.exit_code
    if code == -15 and _terminated_alone(rank, facts):
        return Incident(
            "interrupted",
            _evidence(own),
            [rank],
            "terminated-alone",
            why=[
                _(
                    "rank {rank} was ended by SIGTERM before its launcher stopped the others; no line says who sent it"
                ).format(rank=rank)
            ],
            confidence="medium",
        )
    if code is None or code == 0 or code in {-15, -2, -1}:
        return None
    if own.victim:  # it failed because of the others; how it ended adds nothing
        return None
    if code == -9 and any(event.fields.get("signal") in {"SIGKILL", "9"} for event in own.stopped):
        return None  # its launcher killed it after it did not stop when asked
    signal = -code
    if code < 0 and signal in _CRASH:
        return Incident(
            _CRASH[signal],
            _evidence(own),
            [rank],
            "crash-signal",
            why=[_("rank {rank} ended by signal {signal}, a crash in native code").format(rank=rank, signal=signal)],
            confidence="medium",
        )
    if code == -9:
        grown = memory_growth(facts, rank)
        if grown:
            return Incident(
                "host_oom",
                _evidence(own) + grown,
                [rank],
                "killed-after-memory-growth",
                why=[
                    _(
                        "rank {rank} was killed (SIGKILL) while the host memory that the log reports kept growing"
                    ).format(rank=rank)
                ],
                confidence="medium",
            )
        return Incident(
            "unknown_exit",
            _evidence(own),
            [rank],
            "killed",
            why=[
                _(
                    "rank {rank} was killed (SIGKILL) and wrote nothing; no kernel, cgroup or scheduler line says by "
                    "whom. The usual killer is the out-of-memory killer"
                ).format(rank=rank)
            ],
            confidence="medium",
        )
    if code == -6:
        return Incident(
            "unknown_exit",
            _evidence(own),
            [rank],
            "aborted",
            why=[_("rank {rank} aborted (SIGABRT) and wrote no reason that is known").format(rank=rank)],
            confidence="low",
        )
    return Incident(
        "unknown_exit",
        _evidence(own),
        [rank],
        "exit-without-a-word",
        tier=1,
        why=[_("rank {rank} ended with exit code {code} and wrote no error").format(rank=rank, code=code)],
        confidence="low",
    )


def _terminated_alone(rank: int, facts: Facts) -> bool:
    """Whether SIGTERM ended this rank and was not the launcher's, which it sends to the others."""
    others = [other for other in facts.ranks.values() if other.rank != rank]
    return (
        not facts.ranks[rank].stopped
        and any(other.stopped for other in others)
        and all(other.exit_code in {None, 0, -15, -9} and not other.causes for other in others)
        and not any(other.exit_code == -9 and not other.stopped for other in others)
    )


def unexplained_exit(facts: Facts) -> Incident | None:
    """A launcher reports a failure, and nothing says whose or why: never a run without a failure."""
    told = [event for event in facts.exits if exit_code_of(event) not in {None, 0}]
    codes = {exit_code_of(event) for event in told}
    # "ChildFailedError", its table cut off
    told += [e for e in facts.teardowns if e.kind == "exception" and e.fields.get("activity") == "launch"]
    if not told:
        return None
    stopped = bool(codes) and codes <= {-15, -2, -1}
    how = ", ".join(str(code) for code in sorted(code for code in codes if code is not None)) or "?"
    return Incident(
        "interrupted" if stopped else "unknown_exit",
        told,
        [],
        "exit-nobody-explains",
        tier=2,
        scope="run",
        status="undetermined",
        why=[_("the launcher reports that a process failed (exit code {code}); no line says why").format(code=how)],
        confidence="low",
    )


def _nameless(facts: Facts) -> Incident | None:
    """A launcher that reports an exit code without saying whose (DeepSpeed's): the rank that shows no symptom."""
    # a watchdog aborts (-6) the ranks that waited: that is no culprit's code
    told = [
        event
        for event in facts.exits
        if event.rank is None and "ranks" not in event.fields and exit_code_of(event) not in {None, 0, -15, -6}
    ]
    if not told or any(own.causes for own in facts.ranks.values()):
        return None
    silent = [rank for rank, own in sorted(facts.ranks.items()) if not own.victim and not own.exits]
    victims = [own for own in facts.ranks.values() if own.victim]
    if len(silent) != 1 or not victims:
        return None
    own = facts.ranks[silent[0]]
    code = exit_code_of(told[0])
    assert code is not None
    said = [own.last_said] if own.last_said else []
    category = _CRASH.get(-code, "unknown_exit")
    return Incident(
        category,
        [*told, *[event for event in said if event is not None]],
        [silent[0]],
        "exit-code-without-a-name",
        why=[
            _(
                "the launcher reports exit code {code} without naming the rank; rank {rank} is the only one that shows "
                "no sign of having lost a peer"
            ).format(code=code, rank=silent[0])
        ],
        # a victim ends with code 1 as well: the one that shows nothing is then a suspect only
        tier=1 if code == 1 else 0,
        confidence="low" if code == 1 else "medium",
    )


def memory_growth(facts: Facts, rank: int) -> list[Event]:
    """Return the first and the last report of host memory when it grew a lot and never fell; else nothing."""
    reports = [
        event
        for event in facts.events
        if event.kind == "memory" and event.fields.get("memory_mb") and event.rank in {rank, None}
    ]
    values = [float(event.fields["memory_mb"]) for event in reports]
    rising = all(later >= earlier * 0.98 for earlier, later in pairwise(values))
    if len(values) >= 3 and rising and values[-1] >= values[0] * _GROWTH:
        return [reports[-1], reports[0]]
    return []
