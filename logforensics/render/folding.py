"""Folds hundreds of first exceptions into a few rows: like ones together, in the order of their first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from logforensics.language import _, list_ranks
from logforensics.model import Event
from logforensics.render.run_facts import lead_seconds
from logforensics.render.text import clean, clock_time, duration, without_folders

# Up to this many rows every rank has its own; beyond it like ones are one row.
FOLD_ABOVE = 12
_SAME_MOMENT_S = 0.05
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class ExceptionRow:
    """The first failure line of one rank, or of several ranks that say the same."""

    ranks: str
    count: int
    node: str
    time: str
    lead: str
    category: str
    role: str
    message: str
    place: str
    origin: bool
    event_id: int = -1


def folded(events: list[Event], timeouts: dict[int, Event], origins: set[int]) -> tuple[list[ExceptionRow], int]:
    """Return the rows, and how many exceptions did not fit into them."""
    groups: list[list[Event]]
    if len(events) <= FOLD_ABOVE:
        groups = [[event] for event in events]
    else:
        alike: dict[tuple[object, ...], list[Event]] = {}
        for event in events:
            shape = _NUMBERS.sub("#", event.message)
            alike.setdefault((event.category, event.role, event.rank in origins, shape), []).append(event)
        groups = list(alike.values())
    # a row of the rank to blame is never among those left out
    groups.sort(key=lambda group: not any(event.rank in origins for event in group))
    shown, rest = groups[:FOLD_ABOVE], groups[FOLD_ABOVE:]
    shown.sort(key=lambda group: group[0].event_id)
    return [_row(group, timeouts, origins) for group in shown], sum(map(len, rest))


def _row(group: list[Event], timeouts: dict[int, Event], origins: set[int]) -> ExceptionRow:
    first = group[0]
    nodes = {event.node for event in group if event.node}
    ranks = [event.rank for event in group if event.rank is not None]
    return ExceptionRow(
        ranks=list_ranks(ranks) or "?",
        count=len(group),
        node=clean(next(iter(nodes)))
        if len(nodes) == 1
        else _("{count} nodes").format(count=len(nodes))
        if nodes
        else "",
        time=clock_time(first.time_us),
        lead=_lead_words(group, timeouts),
        category=first.category or "",
        role=first.role,
        message=clean(without_folders(first.message)),
        place=clean(f"{first.source}:{first.line}"),
        origin=any(rank in origins for rank in ranks),
        event_id=first.event_id,
    )


def _node_words(nodes: set[str]) -> str:
    if len(nodes) > 1:
        return _("{count} nodes").format(count=len(nodes))
    return clean(next(iter(nodes), ""))


def _lead_words(group: Iterable[Event], timeouts: dict[int, Event]) -> str:
    """How long before the first watchdog timeout the first of the group came, in words; "" when unknown."""
    for event in group:
        timeout = timeouts.get(event.attempt)
        if timeout is not None and event.event_id == timeout.event_id:
            return _("is the first")
        lead = lead_seconds(event, timeout)
        if lead is not None:
            if abs(lead) < _SAME_MOMENT_S:
                return _("with it")
            words = _("{duration} before") if lead > 0 else _("{duration} after")
            return words.format(duration=duration(lead))
    return ""
