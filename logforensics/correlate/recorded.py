"""What the flight recorder's dumps say, in the terms of the other rules: stuck collectives and incidents."""

from __future__ import annotations

from logforensics.correlate.collectives import Call, Stuck
from logforensics.correlate.facts import Facts
from logforensics.correlate.incident import CLOCK_SLACK_US, Incident
from logforensics.correlate.recorder import GroupState, Step
from logforensics.language import _, name_ranks
from logforensics.model import Event
from logforensics.timeline import issue_time

_SHARDED = {"_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"}
# More missing dumps than one in this many tell more of how they were collected than of who died.
_FEW = 4


def join_recorded(lines: list[Stuck], facts: Facts) -> list[Stuck]:
    """Return the stuck collectives that log lines and dumps tell of, the one to judge by first.

    Dumps say exactly who entered and who did not; a line that names the absent ranks still comes before them, and so
    does what the lines tell where the dumps only show that everybody waits.
    """
    _name_calls(lines, facts)
    recorded = [stuck for state in facts.recorded if (stuck := _stuck(state, facts, lines))]
    if not recorded:
        return lines
    first = recorded[0]
    others = [stuck for stuck in lines if all(_differ(stuck, other) for other in recorded)]
    tells = bool(first.outliers or first.absent)
    waiting = {call.rank for call in first.calls}
    if lines and (lines[0].told or not (tells or set(lines[0].absent) <= waiting)):
        return [lines[0], *recorded, *(stuck for stuck in others if stuck is not lines[0])]
    return recorded + others


def _name_calls(lines: list[Stuck], facts: Facts) -> None:
    """A gloo timeout does not say in which call it waited: it is the one that its rank made at that moment."""
    for stuck in lines:
        for call in stuck.calls:
            start = issue_time(call.event)
            if call.sequence is not None or call.operation is not None or start is None:
                continue
            near = [
                event
                for event in facts.recorder
                if event.rank == call.rank
                and event.time_us is not None
                and abs(event.time_us - start) <= CLOCK_SLACK_US
            ]
            made = max((event for event in near if event.kind == "collective"), key=lambda e: e.event_id, default=None)
            if made is not None:
                call.sequence, call.operation = made.sequence, made.operation
                stuck.group = stuck.group or made.process_group


def _differ(one: Stuck, other: Stuck) -> bool:
    first, second = one.state(), other.state()
    return (first.sequence, first.operation) != (second.sequence, second.operation)


def _stuck(state: GroupState, facts: Facts, lines: list[Stuck]) -> Stuck | None:
    """One group of the dumps; where a log line tells of the same call it is the better evidence."""
    told = {
        (call.rank, call.sequence, call.operation): call.event
        for stuck in lines
        for call in stuck.calls
        if not stuck.told
    }
    known = {
        (event.rank, event.process_group, event.sequence, event.operation): event
        for event in facts.recorder
        if event.kind == "collective"
    }
    calls: dict[int, Call] = {}
    for rank, step in state.entered.items():
        call = step.call
        name = f"{call.operation} {call.target}".strip()
        event = told.get((rank, call.sequence, name)) or known.get((rank, call.group.label, call.sequence, name))
        if event is not None:
            operation, given, taken, _types = step.shape
            calls[rank] = Call(rank, event, call.sequence, operation, (given, taken))
    if not calls:
        return None
    return Stuck(
        state.group.label,
        [calls[rank] for rank in sorted(calls)],
        list(state.absent),
        [calls[rank] for rank in sorted(state.diverged) if rank in calls],
        recorded=state,
    )


def recorded_incident(stuck: Stuck, state: GroupState, facts: Facts) -> Incident:
    """Return what the dumps show where no log line explains it: another call, an absent rank, everybody waiting."""
    if stuck.outliers:
        return _mismatch(stuck, state)
    if state.crossed:
        return _crossed(stuck, state, facts)
    if state.absent:
        return _absent(stuck, state, facts)
    return _all_wait(stuck, state, facts)


def _mismatch(stuck: Stuck, state: GroupState) -> Incident:
    odd = sorted(state.diverged)
    minority = bool(state.agreed)
    first = state.diverged[odd[0]]
    other = next(iter(state.agreed.values()), None) or next(
        step for step in reversed(state.diverged.values()) if step.shape != first.shape
    )
    against = sorted(rank for rank, step in state.entered.items() if step.shape == other.shape)
    why = [
        _("collective {sequence} of group {group} is {call} on {ranks} and {other} on {others}").format(
            sequence=state.sequence,
            group=state.group.label,
            call=first.described,
            ranks=name_ranks([rank for rank in odd if state.diverged[rank].shape == first.shape]),
            other=other.described,
            others=name_ranks(against),
        )
    ]
    if not minority:
        why.append(_("no majority says which of them is wrong"))
    same = first.operation == other.operation
    return Incident(
        "zero_mismatch" if same and first.operation in _SHARDED else "collective_mismatch",
        [call.event for call in stuck.outliers]
        + [call.event for call in stuck.calls if call not in stuck.outliers][:1],
        odd,
        "different-collectives",
        why=why,
        confidence="high" if minority and state.complete else "medium",
    )


def _crossed(stuck: Stuck, state: GroupState, facts: Facts) -> Incident:
    """Two groups of ranks wait for each other in two process groups: the order of their collectives differs."""
    others = [other for other in facts.recorded if set(other.waiting) & set(state.absent)]
    few = min((sorted(state.waiting), sorted(state.absent)), key=len)
    even = len(state.waiting) == len(state.absent)
    events = [call.event for call in stuck.calls]
    events += [
        event
        for event in facts.recorder
        if event.role == "symptom" and any(event.process_group == other.group.label for other in others)
    ]
    return Incident(
        "collective_mismatch",
        sorted(events, key=lambda event: event.rank not in few),
        sorted(set(state.waiting) | set(state.absent)) if even else few,
        "crossed-collectives",
        why=[
            _("{ranks} wait in {call} of group {group}, which {others} never entered: they wait in {other}").format(
                ranks=name_ranks(sorted(state.waiting)),
                call=_numbered(state),
                group=state.group.label,
                others=name_ranks(state.absent),
                other=", ".join(f"{_numbered(other)} ({other.group.label})" for other in others),
            ),
            _("the ranks call the collectives of these groups in different orders"),
        ],
        confidence="medium",
    )


def _absent(stuck: Stuck, state: GroupState, facts: Facts) -> Incident:
    why = [
        _("{ranks} never entered {call} of group {group}, in which {others} wait").format(
            ranks=name_ranks(state.absent),
            call=_numbered(state),
            group=state.group.label,
            others=name_ranks(sorted(state.waiting)),
        )
    ]
    last = _last_of(state, facts)
    if last:
        why.append(
            _("the last thing that the recorder has of {ranks} is {operation} number {sequence}{where}").format(
                ranks=name_ranks([last.rank] if last.rank is not None else []),
                operation=last.operation,
                sequence=last.sequence,
                where=_(", called at {place}").format(place=last.fields["where"]) if "where" in last.fields else "",
            )
        )
    said = [own.last_said for rank in state.absent if (own := facts.ranks.get(rank)) and own.last_said]
    return Incident(
        "unknown_timeout",
        [event for event in [*said, last, *(call.event for call in stuck.calls)] if event is not None],
        list(state.absent),
        "recorded-absent",
        tier=2,
        status="undetermined",
        why=why,
        confidence="medium" if state.complete else "low",
    )


def _last_of(state: GroupState, facts: Facts) -> Event | None:
    """The newest call of the first absent rank, in whatever group."""
    own = [event for event in facts.recorder if event.rank in state.absent[:1] and event.kind == "collective"]
    return max(own, key=lambda event: event.time_us or 0, default=None)


def _all_wait(stuck: Stuck, state: GroupState, facts: Facts) -> Incident:
    """Nobody who has a dump is missing: who has none is a suspect, else the transport or a GPU."""
    suspects: list[int] = []
    if state.unseen and (len(state.unseen) == 1 or len(state.unseen) * _FEW <= len(state.members)):
        suspects = state.unseen
        why = _("every rank with a flight recorder dump waits in {call}; {ranks} left no dump").format(
            call=_numbered(state), ranks=name_ranks(suspects)
        )
    elif state.passed and len(state.waiting) * 2 < len(state.members):
        suspects = sorted(state.waiting)
        why = _("{ranks} did not get out of {call}, which the others completed: look at the GPU and its links").format(
            ranks=name_ranks(suspects), call=_numbered(state)
        )
    else:
        why = _("every rank with a flight recorder dump entered {call}: nobody is missing from it").format(
            call=_numbered(state)
        )
    said = [own.last_said for rank in suspects if (own := facts.ranks.get(rank)) and own.last_said]
    return Incident(
        "unknown_timeout",
        [event for event in said if event is not None] + [call.event for call in stuck.calls],
        suspects,
        "all-wait",
        tier=2,
        status="undetermined",
        why=[why],
        confidence="low",
    )


def _numbered(state: GroupState) -> str:
    step: Step = next(iter(state.entered.values()))
    if state.sequence is None:
        return step.operation
    return _("{operation} number {sequence}").format(operation=step.operation, sequence=state.sequence)
