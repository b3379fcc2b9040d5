"""The values of the page's timeline: lanes, marks, the stuck collective as spans, all on the run's clock.

Times are microseconds after ``start_us``; a mark whose log line carries no time has None and is drawn only in
the "by order" view. A lane belongs to a *key*: a rank, or a negative number for a writer that is no rank
(launcher, kernel, scheduler). In a large run the lanes of like ranks are folded by node and fate; all marks
are there still, so the page can unfold them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logforensics.language import _
from logforensics.model import FATES, Event, RankState
from logforensics.render.event_table import EventTable
from logforensics.render.lanes import FOLD_ABOVE, Lane, folded_lanes
from logforensics.render.run_facts import first_timeouts
from logforensics.render.text import clean
from logforensics.render.words import ROLE_SIGNS
from logforensics.timeline import issue_time

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

MOST_MARKS = 30_000
# In a folded run, so many like marks of one rank are drawn.
_MOST_ALIKE = 3
_MOST_WRITERS = 24
_ROLES = tuple(ROLE_SIGNS)
_WORTH = {role: number for number, role in enumerate(_ROLES)}
_STREAMS = {"launcher", "scheduler", "kernel"}
# A window on the incident is worth it only when the whole run is much longer.
_WHOLE_RUN = 2.5
_MARGIN = 0.08
_LATE_ROLES = {"symptom", "teardown", "pointer"}


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """What the chart draws. ``marks``: (key, time, role number, table row, hollow, error in ms)."""

    start_us: int
    ranks: list[int]
    nodes: list[str]
    node_of: list[int]
    fate_of: list[int]
    writers: list[str]
    lanes: list[Lane]
    marks: list[tuple[int, int | None, int, int, int, int]]
    spans: list[tuple[int, int, int, int, int, int]]
    labels: list[str]
    alive: list[tuple[int, int, int]]
    moments: list[tuple[int, str, str]]
    window: tuple[int, int] | None
    leads: dict[int, str]
    category: str
    untimed: int
    not_drawn: int
    total: int
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def by_time(self) -> bool:
        """Whether the clock says more than each lane's own order does: most events and the evidence have a time."""
        evident = [mark[1] is not None for mark in self.marks if mark[3] in self.leads]
        return self.total > 0 and self.untimed * 2 <= self.total and (not evident or any(evident))

    def values(self) -> dict[str, Any]:
        """Return what the page's script reads."""
        return {
            "start": self.start_us // 1000,
            "ranks": self.ranks,
            "nodes": self.nodes,
            "node": self.node_of,
            "fate": self.fate_of,
            "fates": list(FATES),
            "roles": list(_ROLES),
            "writers": self.writers,
            "lanes": [[lane.label, lane.note, FATES.index(lane.fate), lane.keys] for lane in self.lanes],
            "marks": self.marks,
            "spans": self.spans,
            "labels": self.labels,
            "alive": self.alive,
            "moments": self.moments,
            "window": self.window,
            "leads": self.leads,
            "clock": self.by_time,
            "category": self.category,
        }


def timeline_chart(analysis: Analysis, table: EventTable, leads: dict[int, str]) -> TimelineChart | None:
    """Return the chart; None when there is nothing to draw. ``leads`` maps table rows to where a click leads."""
    events = analysis.events
    states = {state.rank: state for state in analysis.ranks}
    times = [event.time_us for event in events if event.time_us is not None]
    if not events:
        return None
    start = min(times, default=0)
    ranks = sorted(set(states) | {event.rank for event in events if event.rank is not None})
    fold = len(ranks) > FOLD_ABOVE
    writers = _writers(events)
    names = sorted(writers, key=lambda name: -writers[name])
    drawn, left = _chosen(events, fold)
    nodes = sorted({state.node for state in analysis.ranks if state.node})
    place = {name: number for number, name in enumerate(nodes)}
    every = [states.get(rank) or RankState(rank) for rank in ranks]
    apart = set(analysis.verdict.ranks) | {item.rank for item in analysis.verdict.evidence if item.rank is not None}
    labels: dict[str, int] = {}
    return TimelineChart(
        start_us=start - start % 1000,
        ranks=ranks,
        nodes=[clean(name) for name in nodes],
        node_of=[place.get(state.node or "", -1) for state in every],
        fate_of=[FATES.index(state.fate) if state.fate in FATES else FATES.index("unknown") for state in every],
        writers=[clean(name) for name in names],
        lanes=folded_lanes(every, apart) if fold else [],
        marks=[_mark(event, start, writers, table) for event in drawn],
        spans=_spans(events, start, table, labels),
        labels=list(labels),
        alive=_alive(events, analysis.ranks, start),
        moments=_moments(analysis, start),
        window=_window(analysis, times),
        leads=leads,
        category=analysis.verdict.category,
        untimed=sum(event.time_us is None for event in drawn),
        not_drawn=left,
        total=len(drawn),
        counts={role: count for role in _ROLES if (count := Counter(event.role for event in drawn)[role])},
    )


def _writer(event: Event, with_node: bool) -> str:
    name = event.stream if event.stream in _STREAMS else _("no rank named")
    return f"{name} · {event.node}" if with_node and event.node else name


def _writers(events: Iterable[Event]) -> dict[str, int]:
    """Name the lanes of what no rank wrote, and number them from -1 downwards; nodes apart where there is room."""
    ownerless = [event for event in events if event.rank is None]
    names = dict.fromkeys(_writer(event, True) for event in ownerless)
    if len(names) > _MOST_WRITERS:
        names = dict.fromkeys(_writer(event, False) for event in ownerless)
    return {name: -1 - number for number, name in enumerate(sorted(names))}


def _key(event: Event, writers: dict[str, int]) -> int:
    if event.rank is not None:
        return event.rank
    name = _writer(event, True)
    return writers[name] if name in writers else writers[_writer(event, False)]


def _chosen(events: list[Event], fold: bool) -> tuple[list[Event], int]:
    """Return the events to draw and how many are left out: in a large run like ones of a rank are thinned."""
    if not fold and len(events) <= MOST_MARKS:
        return events, 0
    alike: Counter[tuple[object, ...]] = Counter()
    last: dict[int | None, Event] = {}
    kept: list[Event] = []
    for event in events:
        if event.role == "progress":
            last[event.rank] = event
            continue
        key = (event.attempt, event.rank, event.role, event.signature)
        alike[key] += 1
        if event.rank is None or alike[key] <= _MOST_ALIKE:
            kept.append(event)
    kept += last.values()
    kept.sort(key=lambda event: (_WORTH.get(event.role, 9), event.event_id))
    kept = sorted(kept[:MOST_MARKS], key=lambda event: event.event_id)
    return kept, len(events) - len(kept)


def _mark(
    event: Event, start: int, writers: dict[str, int], table: EventTable
) -> tuple[int, int | None, int, int, int, int]:
    return (
        _key(event, writers),
        None if event.time_us is None else event.time_us - start,
        _WORTH.get(event.role, len(_ROLES) - 1),
        table.row_of.get(event.event_id, -1),
        int(event.time_basis != "stamped"),
        event.time_error_us // 1000,
    )


def _spans(
    events: Iterable[Event], start: int, table: EventTable, labels: dict[str, int]
) -> list[tuple[int, int, int, int, int, int]]:
    """Each wait from issue to timeout: (rank, from, to, label, table row, unsure); the longest of like ones."""
    found: dict[tuple[int, str], tuple[int, int, int, int, int, int]] = {}
    for event in events:
        issued = issue_time(event) if event.kind == "timeout" and event.rank is not None else None
        if issued is None or event.time_us is None or event.rank is None:
            continue
        name = clean(event.operation or _("a collective"))
        if event.sequence is not None:
            name += f" #{event.sequence}"
        unsure = int(event.time_error_us * 2 > event.time_us - issued)
        row = table.row_of.get(event.event_id, -1)
        span = (event.rank, issued - start, event.time_us - start, labels.setdefault(name, len(labels)), row, unsure)
        known = found.get((event.rank, name))
        if known is None or span[2] - span[1] > known[2] - known[1]:
            found[event.rank, name] = span
    return list(found.values())


def _alive(events: Iterable[Event], states: Iterable[RankState], start: int) -> list[tuple[int, int, int]]:
    """For each rank the first and the last moment that a line of it, or about it, tells of."""
    seen: dict[int, list[int]] = defaultdict(list)
    for event in events:
        if event.rank is not None and event.time_us is not None:
            seen[event.rank].append(event.time_us)
    for state in states:
        if state.last_seen_us is not None and state.rank in seen:
            seen[state.rank].append(state.last_seen_us)
    return [(rank, min(times) - start, max(times) - start) for rank, times in sorted(seen.items())]


def _moments(analysis: Analysis, start: int) -> list[tuple[int, str, str]]:
    """The moments that everything is read against, with a name and a tone: first failure, first timeout, attempts."""
    found: list[tuple[int, str, str]] = []
    verdict = analysis.verdict
    first = verdict.evidence[0].time_us if verdict.evidence else None
    if first is not None and verdict.status != "no_failure":
        name = _("first failure") if verdict.status == "diagnosed" else _("first suspicion")
        found.append((first - start, name, "red"))
    timeouts = [timeout.time_us for timeout in first_timeouts(analysis.events).values()]
    found += [(time - start, _("first timeout"), "blue") for time in timeouts if time is not None]
    begun: dict[int, int] = {}
    for event in analysis.events:
        if event.time_us is not None:
            begun[event.attempt] = min(event.time_us, begun.get(event.attempt, event.time_us))
    later = sorted(begun)[1:]
    return found + [(begun[number] - start, _("attempt {number}").format(number=number), "quiet") for number in later]


def _window(analysis: Analysis, times: list[int]) -> tuple[int, int] | None:
    """The part of the run that holds the incident, when the run is much longer; None to show it whole."""
    moments = [item.time_us for item in analysis.verdict.evidence if item.time_us is not None]
    moments += [link.time_us for link in analysis.chain if link.time_us is not None]
    if not moments or not times or analysis.verdict.status == "no_failure":
        return None
    begin, end = min(moments), max(moments)
    end = max([end, *(e.time_us for e in analysis.events if e.time_us is not None and e.role in _LATE_ROLES)])
    length = max(end - begin, 1_000_000)
    if max(times) - min(times) < length * _WHOLE_RUN:
        return None
    start = min(times)
    return int(begin - start - length * _MARGIN), int(end - start + length * _MARGIN)
