"""The events as the rows of a table that a person can search: one row each, like ones of many ranks on one row.

A page must open at once, so its table is bounded. What goes first when it is full are signs of life and
facts; how much was left out is said, never hidden.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from logforensics.language import _, list_ranks
from logforensics.model import Event
from logforensics.render.text import clean, clock_time, cut, day
from logforensics.render.words import ROLE_SIGNS, ROLE_WORDS

# Up to this many events each has its own row.
FOLD_ABOVE = 800
MOST_ROWS = 1500
_MOST_TEXT = 1000
_MOST_TEXT_FOLDED = 400
_MOST_RANKS = 120
_SHAPE_LENGTH = 200
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
# What is left out last, first.
_WORTH = ("cause", "either", "symptom", "pointer", "teardown", "context", "noise", "progress")


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event, or several that say the same: ``count`` of them, the first at ``place``."""

    number: int
    attempt: int
    time: str
    last_time: str
    sure: bool
    within: str
    ranks: str
    node: str
    role: str
    sign: str
    words: str
    kind: str
    category: str
    signature: str
    message: str
    place: str
    count: int
    dated: str


@dataclass(frozen=True, slots=True)
class EventTable:
    """The rows, in causal reading order, and what is not among them (role: how many events)."""

    rows: list[EventRow]
    total: int
    left_out: dict[str, int]
    row_of: Mapping[int, int] = field(default_factory=dict)

    def anchor(self, event_id: int) -> str:
        """Return the id of the row that an event is in; "" when it is in none."""
        number = self.row_of.get(event_id)
        return "" if number is None else f"event-{number}"

    @property
    def shown(self) -> int:
        """How many events the rows stand for."""
        return self.total - sum(self.left_out.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many rows each role has, in the order of ``ROLE_SIGNS``."""
        found = Counter(row.role for row in self.rows)
        return {role: found[role] for role in ROLE_SIGNS if found[role]}


def event_table(events: list[Event], needed: Collection[int], origins: Collection[int]) -> EventTable:
    """Return the table. ``needed`` are the ids of events that must have a row; ``origins`` the ranks to blame."""
    groups = [[event] for event in events] if len(events) <= FOLD_ABOVE else _alike(events, needed, origins)
    left: list[list[Event]] = []
    if len(groups) > MOST_ROWS:
        worth = {role: number for number, role in enumerate(_WORTH)}
        groups.sort(key=lambda group: (group[0].event_id not in needed, worth.get(group[0].role, 9), group[0].event_id))
        groups, left = groups[:MOST_ROWS], groups[MOST_ROWS:]
        groups.sort(key=lambda group: group[0].event_id)
    days = len({day(event.time_us) for event in events if event.time_us is not None})
    most = _MOST_TEXT if len(events) <= FOLD_ABOVE else _MOST_TEXT_FOLDED
    rows = [_row(number, group, most, days > 1) for number, group in enumerate(groups)]
    return EventTable(
        rows=rows,
        total=len(events),
        left_out=dict(Counter(group[0].role for group in left for _event in group)),
        row_of={event.event_id: row.number for row, group in zip(rows, groups, strict=True) for event in group},
    )


def _alike(events: Iterable[Event], needed: Collection[int], origins: Collection[int]) -> list[list[Event]]:
    """Group events that say the same; those that the verdict rests on, and those of its ranks, stay apart."""
    found: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        shape = _NUMBERS.sub("#", event.message[:_SHAPE_LENGTH])
        own = event.event_id if event.event_id in needed else -1
        guilty = event.rank if event.rank in origins else None
        key = (own, event.attempt, event.signature, event.role, event.category, guilty, event.rank is None, shape)
        found.setdefault(key, []).append(event)
    return list(found.values())


def _row(number: int, group: list[Event], most: int, dated: bool) -> EventRow:
    first = group[0]
    times = [event.time_us for event in group if event.time_us is not None]
    ranks = sorted({event.rank for event in group if event.rank is not None})
    nodes = sorted({event.node for event in group if event.node})
    start = clock_time(min(times)) if times else ""
    end = clock_time(max(times)) if times else ""
    return EventRow(
        number=number,
        attempt=first.attempt,
        time=start,
        last_time=end if end != start else "",
        sure=first.time_basis == "stamped",
        within=_within(first.time_error_us) if first.time_us is not None else "",
        ranks=cut(list_ranks(ranks), _MOST_RANKS),
        node=_node_words(nodes),
        role=first.role,
        sign=ROLE_SIGNS.get(first.role, ""),
        words=_(ROLE_WORDS.get(first.role, first.role)),
        kind=first.kind,
        category=first.category or "",
        signature=first.signature,
        message=clean(first.message, most),
        place=clean(f"{first.source}:{first.line}", _MOST_TEXT_FOLDED),
        count=sum(event.repeats for event in group),
        dated=day(min(times)) if times and dated else "",
    )


def _node_words(nodes: list[str]) -> str:
    if len(nodes) > 1:
        return _("{count} nodes").format(count=len(nodes))
    return clean(nodes[0]) if nodes else ""


def _within(error_us: int) -> str:
    """The half-width of a time's uncertainty in words; below 50 ms it is not worth saying."""
    if error_us < 50_000:
        return ""
    seconds = error_us / 1e6
    return f"± {seconds:.1f} s" if seconds < 60 else f"± {seconds / 60:.0f} min"
