"""Who waits in which collective, who never came, who came with something else."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from logforensics.correlate.facts import Facts, ranks_in
from logforensics.correlate.recorder import GroupState
from logforensics.model import CollectiveState, Event
from logforensics.timeline import issue_time

# A counter that nobody can have reached is garbage read from a dead communicator.
_ABSURD = 1 << 40


@dataclass(slots=True)
class Call:
    """One rank's view of the collective that it is stuck in."""

    rank: int
    event: Event
    sequence: int | None
    operation: str | None
    sizes: tuple[int | None, int | None]

    @property
    def shape(self) -> tuple[str | None, int | None, int | None]:
        """What must be the same on all ranks."""
        return (self.operation, *self.sizes)


@dataclass(slots=True)
class Stuck:
    """One process group's stuck collective, seen from all its ranks."""

    group: str | None
    calls: list[Call] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    outliers: list[Call] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)  # lines that name the absent ranks
    recorded: GroupState | None = None  # what the flight recorder's dumps say, where it rests on them

    @property
    def waiting(self) -> list[int]:
        """The ranks that entered and waited in vain."""
        return sorted({call.rank for call in self.calls} - set(self.absent))

    def state(self) -> CollectiveState:
        """The public form."""
        sequences = Counter(call.sequence for call in self.calls if call.sequence is not None)
        operations = Counter(call.operation for call in self.calls if call.operation)
        starts = [start for call in self.calls if (start := _issued(call.event)) is not None]
        return CollectiveState(
            process_group=self.group,
            sequence=sequences.most_common(1)[0][0] if sequences else None,
            operation=operations.most_common(1)[0][0] if operations else None,
            waiting=self.waiting,
            absent=self.absent,
            mismatched=[
                {
                    "rank": call.rank,
                    "operation": call.operation,
                    "sequence": call.sequence,
                    "numel_in": call.sizes[0],
                    "numel_out": call.sizes[1],
                }
                for call in self.outliers
            ],
            issued_us=min(starts) if starts else None,
        )


def _issued(event: Event) -> int | None:
    """When a call was issued: the recorder has that moment, a timeout's line comes later."""
    return event.time_us if event.stream == "flight_recorder" else issue_time(event)


def find_stuck(facts: Facts) -> list[Stuck]:
    """Return the stuck collectives, the one that most ranks wait in first."""
    groups: dict[str | None, Stuck] = {}
    latest: dict[tuple[str | None, int], Call] = {}
    for event in facts.timeouts:
        if event.rank is None:
            continue
        call = Call(
            event.rank,
            event,
            event.sequence,
            event.operation,
            (event.fields.get("numel_in"), event.fields.get("numel_out")),
        )
        known = latest.get((event.process_group, event.rank))
        if known is None or (known.sequence is None and call.sequence is not None):
            latest[event.process_group, event.rank] = call
    for (group, _rank), call in latest.items():
        groups.setdefault(group, Stuck(group)).calls.append(call)
    for stuck in groups.values():
        stuck.calls.sort(key=lambda call: call.rank)
        _find_outliers(stuck)
    found = sorted(groups.values(), key=lambda stuck: -len(stuck.calls))
    _find_absent(found, facts)
    return found


def _find_outliers(stuck: Stuck) -> None:
    """The ranks whose operation or size differs from the majority's at the same place in the order."""
    by_sequence: dict[int, list[Call]] = defaultdict(list)
    for call in stuck.calls:
        if call.sequence is not None:
            by_sequence[call.sequence].append(call)
    for calls in by_sequence.values():
        shapes = Counter(call.shape for call in calls)
        if len(shapes) > 1:
            majority, count = shapes.most_common(1)[0]
            even = sum(1 for other in shapes.values() if other == count) > 1
            stuck.outliers += [call for call in calls if even or call.shape != majority]


def _find_absent(found: list[Stuck], facts: Facts) -> None:
    """Ranks that never entered: named by a line, shown by their counters, or the only ones that do not wait."""
    named = [event for event in (*facts.pointers, *facts.timeouts) if event.fields.get("absent_ranks")]
    if named and not found:
        found.append(Stuck(named[0].process_group))
    if not found:
        return
    main = found[0]
    main.told = named
    absent: set[int] = set()
    for event in named:
        absent.update(ranks_in(event.fields["absent_ranks"]))
    waiting = {call.rank for call in main.calls}
    if not absent:
        absent = _behind(facts, waiting)
    if not absent and waiting:
        silent = {
            rank
            for rank in facts.expected
            if rank not in waiting and not (rank in facts.ranks and facts.ranks[rank].victim)
        }
        absent = silent if len(silent) <= max(len(waiting), 1) or set(facts.ranks) >= silent else set()
    main.absent = sorted(absent - ({call.rank for call in main.calls} if not named else set()))


def _behind(facts: Facts, waiting: set[int]) -> set[int]:
    """Ranks whose host side queued fewer collectives than the others': they were busy elsewhere, or gone."""
    counts: dict[int, tuple[int, int]] = {}
    for rank, own in facts.ranks.items():
        if own.status is None:
            continue
        queued, done = own.status.fields.get("enqueued"), own.status.fields.get("completed")
        if queued is not None and done is not None and 0 <= done < _ABSURD and 0 <= queued < _ABSURD:
            counts[rank] = (queued, done)
    most = max((queued for queued, _ in counts.values()), default=0)
    return {rank for rank, (queued, done) in counts.items() if queued == done and queued < most and rank not in waiting}


def laggards(stuck: Stuck, facts: Facts) -> list[int]:
    """Return the ranks that wait too, but have queued less than the others: suspects, no proof."""
    queued = {
        rank: own.status.fields["enqueued"]
        for rank, own in facts.ranks.items()
        if own.status is not None and 0 <= own.status.fields.get("enqueued", -1) < _ABSURD
    }
    if len(set(queued.values())) < 2:
        sequences = {call.rank: call.sequence for call in stuck.calls if call.sequence is not None}
        if len(set(sequences.values())) < 2:
            return []
        least = min(sequences.values())
        return sorted(rank for rank, sequence in sequences.items() if sequence == least)
    least = min(queued.values())
    behind = sorted(rank for rank, count in queued.items() if count == least)
    return behind if len(behind) < len(queued) else []
