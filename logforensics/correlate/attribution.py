"""Names the writers of failures that name none: from the lines around them, and from what launchers saw.

Older torch, failures before the process group exists, and mp.spawn print tracebacks without a rank. Every
rule here needs a witness that can only mean one rank; else the failure stays without one.
"""

from __future__ import annotations

from collections import defaultdict

from logforensics.correlate.facts import exit_code_of, wrote
from logforensics.model import Event

# A line about its own writer's rank stands this close below the failure that it belongs to.
_BELOW = 8
# The frames of an exception that a task's name heads take this many lines at most.
_FRAMES_BELOW = 80
# mp.spawn names the process this close above the traceback that it passes on.
_ABOVE_BYTES = 600
_FAILING = {"cause", "either", "symptom"}


def attribute(events: list[Event]) -> None:
    """Set the rank of failures that have none, in place, where exactly one rank can be meant."""
    nameless = [
        event
        for event in events
        if event.rank is None
        and (event.role in _FAILING or (event.role == "pointer" and event.kind == "exception"))
        and event.stream not in {"scheduler", "kernel"}
    ]
    if not nameless:
        return
    by_source: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_source[event.source].append(event)
    for event in nameless:
        _by_pointer_above(event, by_source[event.source])
        if event.rank is None and event.role != "pointer":
            _by_named_task_above(event, by_source[event.source])
    nameless = [event for event in nameless if event.role != "pointer"]
    for event in nameless:
        if event.rank is None:
            _by_line_below(event, nameless, by_source[event.source])
    _by_exit([event for event in nameless if event.rank is None], events)


def _by_pointer_above(event: Event, around: list[Event]) -> None:
    """ "-- Process 1 terminated with the following error:" and then that process's traceback.

    Also a DataLoader worker's original traceback under the exception that brought it home.
    """
    header = event.fields.get("traceback_offset")
    if header is None:
        return
    for other in around:
        pointer = other.role == "pointer" and other.kind == "exception" and other.rank is not None
        if pointer and header - _ABOVE_BYTES <= other.offset < header:
            event.rank = other.rank


def _by_named_task_above(event: Event, around: list[Event]) -> None:
    """ "RayTaskError(ValueError): ray::... (pid=9012, ip=...)", that task's frames, and then its exception."""
    above = [other for other in around if other.offset < event.offset]
    last = max(above, key=lambda other: other.offset, default=None)
    if last is None or last.role != "pointer" or last.kind != "exception" or last.rank is None:
        return
    if event.line - last.end_line <= _FRAMES_BELOW:
        event.rank = last.rank


def _by_line_below(event: Event, nameless: list[Event], around: list[Event]) -> None:
    """ "Parameter indices which did not receive grad for rank 3": a later line of the same message."""
    next_failure = min(
        (o.line for o in nameless if o.source == event.source and o.line > event.line),
        default=event.line + 10 * _BELOW,
    )
    limit = min(next_failure, event.end_line + _BELOW)
    near = [
        other
        for other in around
        if other.role == "context"
        and not _begins_like_others(other, event, around)
        and other.rank is not None
        and other.told & {"rank", "group"}
        and event.line < other.line <= limit
    ]
    if near:
        event.rank = min(near, key=lambda other: other.line).rank


def _begins_like_others(line: Event, failure: Event, around: list[Event]) -> bool:
    """Whether a line is how a process begins, as another process's line above the failure was: it is a third one."""
    return line.kind == "init" and any(
        other.signature == line.signature and other.rank != line.rank and other.offset < failure.offset
        for other in around
    )


def _by_exit(nameless: list[Event], events: list[Event]) -> None:
    """One uncaught exception without a rank, and one failed rank without an exception: they belong together."""
    raised = [event for event in nameless if event.fields.get("raised")]
    blocks = [event for event in raised if not event.fields.get("chained")]
    if len(blocks) != 1:
        return
    failed = {
        event.rank for event in events if event.kind == "exit" and event.rank is not None and exit_code_of(event) == 1
    }
    told = {event.rank for event in events if event.role in _FAILING and event.rank is not None and wrote(event)}
    open_ranks = failed - told
    if len(open_ranks) != 1:
        return
    rank = open_ranks.pop()
    for event in nameless:
        if event.source == blocks[0].source:
            event.rank = rank
