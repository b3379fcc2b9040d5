"""Brings the clocks of several nodes together, from moments that they have in common by construction.

Ranks that train together reach a step together, enter a collective together, and leave a rendezvous together. What
one node's stamps of such moments differ from another's, again and again by the same amount, is its clock's offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from logforensics.clock import SECOND

if TYPE_CHECKING:
    from logforensics.model import Event
    from logforensics.reader import RawEvent, Reading

# Nodes of a cluster agree to about this; less is nothing to correct, and ranks do not do things more together.
_AGREE_US = 2 * SECOND
# So many common moments are needed: one alone may be a rank that came late.
_FEWEST = 2
_RENDEZVOUS = {"torchelastic/rendezvous-complete"}

Moments = dict[Hashable, int]


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a node's clock is ahead of the run's, with the half-width of the doubt, from so many common moments."""

    domain: str
    offset_us: int
    error_us: int
    moments: int


def clock_domain(reading: Reading, raw: RawEvent) -> str:
    """Return whose clock stamped a line: its node where that is known, else its launcher's folder or its file."""
    hints = reading.source.hints
    if hints.node:
        return hints.node
    if host := raw.written_by.get("host"):
        return str(host)
    return hints.group if hints.local_rank is not None else reading.source.name


def align_clocks(readings: list[Reading]) -> list[Offset]:
    """Shift the times of events, in place, so that all nodes' clocks agree; return what was corrected.

    The clock of the node with the most common moments is taken for right. A node without enough of them keeps its
    own time.
    """
    owners = _owners(readings)
    moments: dict[str, Moments] = defaultdict(dict)
    for reading in readings:
        for raw in reading.events:
            domain = owners.get(reading.source.name) or clock_domain(reading, raw)
            for moment, time in _moments(raw.event, moments[domain]):
                moments[domain].setdefault(moment, time)
    offsets = _offsets(moments)
    for reading in readings:
        for raw in reading.events:
            found = offsets.get(owners.get(reading.source.name) or clock_domain(reading, raw))
            if found is not None and raw.event.time_us is not None:
                raw.event.time_us -= found.offset_us
                raw.event.time_error_us += found.error_us
    return sorted(offsets.values(), key=lambda found: found.domain)


def _owners(readings: list[Reading]) -> dict[str, str]:
    """Files in which one host writes are that host's, the lines that do not name it included."""
    owners = {}
    for reading in readings:
        hosts = {raw.written_by["host"] for raw in reading.events if "host" in raw.written_by}
        if len(hosts) == 1 and not reading.source.hints.node:
            owners[reading.source.name] = str(hosts.pop())
    return owners


def _moments(event: Event, known: Moments) -> Iterable[tuple[Hashable, int]]:
    """Yield the common moments that an event marks, each with its time on the node's own clock."""
    if event.time_us is None or event.time_basis != "stamped":
        return
    if event.role == "progress" and "step" in event.fields and event.kind == "progress":
        epoch = event.fields.get("epoch")
        yield ("step", event.attempt, event.signature, epoch, event.fields["step"]), event.time_us
    elif event.signature in _RENDEZVOUS:
        number = sum(1 for moment in known if isinstance(moment, tuple) and moment[0] == "rendezvous")
        yield ("rendezvous", event.attempt, number), event.time_us
    elif event.kind == "timeout" and event.rank is not None and event.sequence is not None:
        waited = event.fields.get("elapsed_ms")
        if waited:  # each rank of a node that waited is a witness of its own
            ranks = sum(1 for moment in known if isinstance(moment, tuple) and moment[0] == "issue")
            key = ("issue", event.process_group, event.sequence, event.operation, ranks)
            yield key, event.time_us - int(waited) * 1000


def _offsets(moments: dict[str, Moments]) -> dict[str, Offset]:
    shared = {
        domain: sum(len(own.keys() & other.keys()) for name, other in moments.items() if name != domain)
        for domain, own in moments.items()
    }
    if not shared or not max(shared.values()):
        return {}
    reference = min(shared, key=lambda domain: (-shared[domain], domain))
    aligned: dict[str, int] = {reference: 0}
    found: dict[str, Offset] = {}
    waiting = [domain for domain in sorted(moments) if domain != reference]
    while waiting:
        domain = max(waiting, key=lambda name: (_common(moments, name, aligned), name))
        waiting.remove(domain)
        distances = [
            time - (moments[other][moment] - shift)
            for other, shift in aligned.items()
            for moment, time in moments[domain].items()
            if moment in moments[other]
        ]
        if len(distances) < _FEWEST:
            continue
        offset = int(median(distances))
        error = int(median(abs(distance - offset) for distance in distances))
        if abs(offset) <= _AGREE_US + 3 * error:
            offset = 0
        else:
            found[domain] = Offset(domain, offset, error, len(distances))
        aligned[domain] = offset
    return found


def _common(moments: dict[str, Moments], domain: str, aligned: dict[str, int]) -> int:
    return sum(len(moments[domain].keys() & moments[other].keys()) for other in aligned)
