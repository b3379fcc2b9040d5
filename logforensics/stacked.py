"""Finds files in which several ranks' logs stand one after the other (``cat rank_*.log > all.log``).

Within such a file the order of lines says nothing about which of two ranks came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from logforensics.model import Event

# A file's own part begins with what its rank did; a launcher that names rank after rank only ever reports.
_LIVED = {"progress", "context"}
_NOT_SAID_BY_RANKS = {"launcher", "scheduler", "kernel", "flight_recorder", "config"}


def mark_sections(events: Sequence[Event]) -> None:
    """Number the parts of one file, in place (``Event.section``), where several ranks' logs were put together.

    ``events`` are one file's, in file order, with their ranks. A part is an unbroken stretch of one rank's lines;
    that every rank has only one of them, and that at least two begin with what a rank does before it fails, tells
    such a file from a live one, in which ranks take turns.
    """
    spoken = [e for e in events if e.rank is not None and e.stream not in _NOT_SAID_BY_RANKS and _own(e)]
    stretches = [(rank, list(part)) for rank, part in groupby(spoken, key=lambda event: event.rank)]
    if len(stretches) < 2 or len({rank for rank, _ in stretches}) < len(stretches):
        return
    if sum(1 for _, part in stretches if part[0].role in _LIVED) < 2:
        return
    spans = [(part[0].offset, part[-1].offset, number) for number, (_, part) in enumerate(stretches, 1)]
    for event in events:
        inside = [number for first, last, number in spans if first <= event.offset <= last]
        event.section = inside[0] if inside else -1


def _own(event: Event) -> bool:
    """Whether the rank wrote the line itself: launchers' summaries name ranks, too."""
    return event.role not in {"pointer", "teardown"} and event.signature != "log/last-line"
