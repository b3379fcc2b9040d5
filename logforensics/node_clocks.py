"""Brings the clocks of several nodes together, from moments that they have in common by construction.

Ranks that train together reach a step together, enter a collective together, and leave a rendezvous together. What
one node's stamps of such moments differ from another's, again and again by the same amount, is its clock's offset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from logforensics.clock import SECOND
from logforensics.nodes import hosts_of

if TYPE_CHECKING:
    from logforensics.model import Event
    from logforensics.reader import RawEvent, Reading

# Nodes of a cluster agree to about this; less is nothing to correct, and ranks do not do things more together.
_AGREE_US = 2 * SECOND
# So many common moments are needed: one alone may be a rank that came late.
_FEWEST = 2
_RENDEZVOUS = {"torchelastic/rendezvous-complete"}

Moments = dict[tuple[Any, ...], int]


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a node's clock is ahead of the run's, with the half-width of the doubt, from so many common moments."""

    domain: str
    offset_us: int
    error_us: int
    moments: int


def _clock_of(reading: Reading, raw: RawEvent, owners: dict[str, str]) -> str:
    """Return whose clock stamped a line: its node where that is known, else its launcher's folder or its file."""
    hints = reading.source.hints
    if owner := owners.get(reading.source.name):
        return owner
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
    numbers: Counter[tuple[str, str]] = Counter()
    for reading in readings:
        for raw in reading.events:
            found = _moment(raw.event)
            if found is None:
                continue
            domain = _clock_of(reading, raw, owners)
            moment, time, many = found
            if many:  # the nth witness of a node stands against the nth of another
                moment = (*moment, numbers[domain, moment[0]])
                numbers[domain, moment[0]] += 1
            moments[domain].setdefault(moment, time)
    offsets = _offsets(moments)
    for reading in readings:
        for raw in reading.events:
            offset = offsets.get(_clock_of(reading, raw, owners))
            if offset is not None and raw.event.time_us is not None:
                raw.event.time_us -= offset.offset_us
                raw.event.time_error_us += offset.error_us
    return sorted(offsets.values(), key=lambda found: found.domain)


def _owners(readings: list[Reading]) -> dict[str, str]:
    """Files in which one host writes are that host's, the lines that do not name it included."""
    owners = {}
    for reading in readings:
        hosts = hosts_of(reading)
        if len(hosts) == 1 and not reading.source.hints.node:
            owners[reading.source.name] = str(hosts.pop())
    return owners


def _moment(event: Event) -> tuple[tuple[Any, ...], int, bool] | None:
    """Return the common moment that an event marks: its key, its time, and whether a node has several of one key."""
    if event.time_us is None or event.time_basis != "stamped":
        return None
    if event.role == "progress" and "step" in event.fields and event.kind == "progress":
        key = ("step", event.attempt, event.signature, event.fields.get("epoch"), event.fields["step"])
        return key, event.time_us, False
    if event.signature in _RENDEZVOUS:
        return ("rendezvous", event.attempt), event.time_us, True
    waited = event.fields.get("elapsed_ms")
    if event.kind == "timeout" and event.rank is not None and event.sequence is not None and waited:
        issued = ("issue", event.process_group, event.sequence, event.operation)
        return issued, event.time_us - int(waited) * 1000, True
    return None


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
