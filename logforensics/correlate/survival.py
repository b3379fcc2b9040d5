"""Which failures the run got over: caught and retried, or of a process beside it."""

from __future__ import annotations

from collections import defaultdict

from logforensics.correlate.facts import Facts, exit_code_of, is_training_step, wrote
from logforensics.correlate.incident import before
from logforensics.model import Event

# So many further steps of another rank show that the failed one went on too: they train in step.
_STEPS_TOGETHER = 3
# These end a run a while after they were announced; steps go on until then.
_ANNOUNCED = {"preempted", "interrupted"}


def survived(event: Event, facts: Facts) -> bool:
    """Return whether the run went on behind a failure."""
    if event.fields.get("raised") and "mark" in event.told:
        return False  # torch marks tracebacks in sys.excepthook: this one reached the top and ended the process
    if not _fatal_exit(event.rank, facts) and any(_covers(end, event) for end in facts.finished):
        return True
    if event.category in _ANNOUNCED or event.fields.get("scope") == "run":
        return False
    later = [step for step in facts.progress if is_training_step(step) and before(event, step) is True]
    if not later:
        return False
    own = [step for step in later if step.rank == event.rank and event.rank is not None]
    if _advances(own, _last_step_before(event, facts, event.rank)) >= 1:
        return True
    by_rank: dict[int | None, list[Event]] = defaultdict(list)
    for step in later:
        if step.rank is None or step.rank != event.rank:
            by_rank[step.rank].append(step)
    return any(
        _advances(group, _last_step_before(event, facts, rank)) >= _STEPS_TOGETHER for rank, group in by_rank.items()
    )


def _covers(end: Event, event: Event) -> bool:
    """Whether a line that says that all is done stands behind a failure and speaks for its writer."""
    if end.event_id <= event.event_id or end.attempt != event.attempt:
        return False
    if not wrote(event):
        return before(event, end) is True
    return end.rank is None or event.rank is None or end.rank == event.rank


def _fatal_exit(rank: int | None, facts: Facts) -> bool:
    codes = [exit_code_of(e) for e in facts.exits if rank is None or e.rank in {rank, None}]
    return any(code not in {None, 0} for code in codes)


def _last_step_before(event: Event, facts: Facts, rank: int | None) -> dict[str, int]:
    """The last step of each counter (signature) before an event."""
    last: dict[str, int] = {}
    for other in facts.progress:
        if other.event_id >= event.event_id:
            break
        if other.rank == rank and "step" in other.fields:
            last[other.signature] = other.fields["step"]
    return last


def _advances(later: list[Event], last: dict[str, int]) -> int:
    """How many steps the furthest counter went on behind the failure; a counter that began there counts from there."""
    most = 0
    first = dict(last)
    for other in later:
        step = other.fields.get("step")
        if step is not None:
            most = max(most, step - first.setdefault(other.signature, step))
    return most
