"""Compares the flight recorder dumps of all ranks: who entered which collective, who never did, who called another.

Pure functions over parsed dumps. Dumps are not taken at one moment, and some are missing; so a rank counts as
absent only where another one shows that it waits, and what a missing dump would say is left open.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from logforensics.clock import SECOND
from logforensics.flight_recorder import Call, Dump, Group

# A dump that was written this soon after its last call, which is still watched, is of a run that was alive.
_ALIVE_US = 2 * SECOND
# Every rank may give or take another amount in these.
_UNEVEN = {"ALLTOALL", "ALLTOALL_BASE", "ALLTOALL_SINGLE", "ALLTOALL_V_SINGLE", "SCATTER", "GATHER", "COALESCED"}
_FAR = 1 << 62

Shape = tuple[str, int, int, tuple[str, ...]]


@dataclass(slots=True)
class Step:
    """One rank's collective: the call, or the calls that were coalesced into it. ``over`` says that it ended."""

    calls: list[Call]
    over: bool

    @property
    def call(self) -> Call:
        """The call that stands for all: the last one, which has the state of coalesced ones."""
        return self.calls[-1]

    @property
    def operation(self) -> str:
        """What was called; of a send or receive also with whom."""
        if len(self.calls) == 1 or self.call.p2p:
            return f"{self.calls[0].operation} {self.calls[0].target}".strip()
        names = {call.operation for call in self.calls if call.operation != "COALESCED"}
        return "+".join(sorted(names)) or self.call.operation

    @property
    def shape(self) -> Shape:
        """What must be the same on all ranks: operation, elements in and out, element types."""
        sizes = [call.elements for call in self.calls]
        types = set().union(*(call.types for call in self.calls))
        return self.operation, sum(size[0] for size in sizes), sum(size[1] for size in sizes), tuple(sorted(types))

    @property
    def described(self) -> str:
        """The operation with its tensors: "ALLREDUCE of 102,016 Float"."""
        operation, given, taken, types = self.shape
        size = f" of {max(given, taken):,}" if given or taken else ""
        return operation + size + (" " + "/".join(types) if types and size else "")


@dataclass(slots=True)
class GroupState:
    """Where the ranks of one process group stand. All ranks are global.

    ``waiting`` maps the ranks that entered collective ``sequence`` and did not come out to their call; ``absent``
    holds those whose dump shows that they never entered it, ``passed`` those that came out, ``unseen`` the members
    without a dump.
    ``diverged`` are the ranks that called something else than ``agreed`` did, at the same place in the order;
    where no majority tells who is wrong, all are in ``diverged``. ``last`` is each rank's last call that ended.
    ``crossed``: the absent ranks wait in a collective of another group, in which these are absent.
    """

    group: Group
    attempt: int | None
    members: list[int]
    sequence: int | None = None
    waiting: dict[int, Step] = field(default_factory=dict)
    absent: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    diverged: dict[int, Step] = field(default_factory=dict)
    agreed: dict[int, Step] = field(default_factory=dict)
    last: dict[int, Step] = field(default_factory=dict)
    crossed: bool = False

    @property
    def entered(self) -> dict[int, Step]:
        """Every rank's call at the place in question."""
        return {**self.waiting, **self.agreed, **self.diverged}

    @property
    def issued_us(self) -> int:
        """When the first rank got to the place in question, in microseconds; far off when unknown."""
        times = [step.call.created_us for step in self.entered.values() if step.call.created_us]
        return min(times, default=_FAR)

    @property
    def complete(self) -> bool:
        """Whether the members are known and the dumps of all of them are there."""
        return bool(self.group.ranks) and not self.unseen


def compare(dumps: Iterable[Dump], world_size: int | None = None) -> list[GroupState]:
    """Return the state of each process group in which something is stuck or differs, the telling ones first.

    Groups whose calls all ended alike are left out. Where a rank has several dumps in one attempt, the latest counts.
    ``world_size`` is what else is known of the run's size; it says who has no dump at all.
    """
    states: list[GroupState] = []
    for attempt, own in _by_attempt(dumps).items():
        if _alive(own):
            continue
        identity = _groups_of(own, world_size or 0)
        found = [_state(group, steps, own, attempt) for group, steps in _steps(own, identity).items()]
        found += [_exchange(group, calls, own, attempt) for group, calls in _exchanges(own, identity).items()]
        told = [state for state in found if state.waiting or state.absent or state.diverged]
        _follow(told)
        states += told
    return sorted(states, key=_telling)


def last_calls(dump: Dump) -> list[Call]:
    """Return the last call of each of a dump's groups that has ended, in the dump's order."""
    latest: dict[tuple[int, bool], Call] = {}
    marking = _marks_ends(dump.calls)
    for call in dump.calls:
        if _over(call, marking):
            latest[id(call.group), call.p2p] = call
    return sorted(latest.values(), key=lambda call: call.number)


def _telling(state: GroupState) -> tuple[int, int]:
    """What says most comes first: another call, somebody missing, all waiting."""
    rank = 0 if state.diverged else 1 if state.absent and not state.crossed else 2 if state.crossed else 3
    return rank, state.issued_us


def _by_attempt(dumps: Iterable[Dump]) -> dict[int | None, dict[int, Dump]]:
    attempts: dict[int | None, dict[int, Dump]] = defaultdict(dict)
    for dump in dumps:
        if dump.rank is None:
            continue
        known = attempts[dump.attempt].get(dump.rank)
        if known is None or _newest(known) < _newest(dump):
            attempts[dump.attempt][dump.rank] = dump
    return attempts


def _newest(dump: Dump) -> int:
    return max((call.created_us or 0 for call in dump.calls), default=0)


def _alive(dumps: dict[int, Dump]) -> bool:
    """Whether the dumps were asked of a run that went on: nothing timed out, and all were taken in mid-work."""
    if not all(dump.calls and 0 <= dump.taken_us - _newest(dump) < _ALIVE_US for dump in dumps.values()):
        return False
    pending = False
    for dump in dumps.values():
        marking = _marks_ends(dump.calls)
        still = [call for call in dump.calls if not _over(call, marking)]
        if any(call.retired for call in still):
            return False
        pending = pending or bool(still)
    return pending


# -- steps -------------------------------------------------------------------------------------------------------


def _marks_ends(calls: list[Call]) -> set[str]:
    """The backends that say when a call completed; gloo only stops watching it, whether it failed or not."""
    return {call.backend for call in calls if call.state != "scheduled"} | {"nccl"}


def _over(call: Call, marking: set[str]) -> bool:
    return call.state == "completed" if call.backend in marking else call.retired


Steps = dict[int, dict[int, Step]]


def _numbered(calls: list[Call]) -> dict[int, list[Call]]:
    """The calls by their number in the order: coalesced ones share it."""
    numbered: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        numbered[call.sequence].append(call)
    return numbered


def _steps(dumps: dict[int, Dump], identity: _groups_of) -> dict[Group, Steps]:
    """For each group: rank -> number in the order -> collective."""
    steps: dict[Group, Steps] = defaultdict(dict)
    for rank, dump in dumps.items():
        marking = _marks_ends(dump.calls)
        for own in _by_group(dump, p2p=False):
            steps[identity(own[0].group, rank)][rank] = {
                number: Step(calls, _over(calls[-1], marking)) for number, calls in _numbered(own).items()
            }
    return steps


def _by_group(dump: Dump, *, p2p: bool) -> list[list[Call]]:
    """A dump's calls by group. A group is one object in a dump: its thousands of members are not compared."""
    found: dict[int, list[Call]] = defaultdict(list)
    for call in dump.calls:
        if call.p2p == p2p:
            found[id(call.group)].append(call)
    return list(found.values())


class _groups_of:  # noqa: N801 - used like a function
    """Tells which group a dump means: the same name may stand for several, and some dumps lack the members."""

    def __init__(self, dumps: dict[int, Dump], world_size: int) -> None:
        self.everyone = tuple(range(world_size))
        self.known: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
        for dump in dumps.values():
            for group in {id(call.group): call.group for call in dump.calls}.values():
                if group.ranks:
                    self.known[group.name, group.description].add(group.ranks)

    def __call__(self, group: Group, rank: int) -> Group:
        known = self.known[group.name, group.description]
        if group.description == "default_pg":
            return group._replace(ranks=max((*known, self.everyone), key=len))
        if group.ranks:
            return group
        fitting = [ranks for ranks in known if rank in ranks]
        return group._replace(ranks=fitting[0] if len(fitting) == 1 else ())


# -- collectives ---------------------------------------------------------------------------------------------------


def _state(group: Group, steps: Steps, dumps: dict[int, Dump], attempt: int | None) -> GroupState:
    members = sorted(set(group.ranks) | set(steps))
    # a member whose dump knows nothing of the group has not entered any of its collectives yet
    own = {rank: steps.get(rank, {}) for rank in members if rank in dumps}
    state = GroupState(group, attempt, members, unseen=[rank for rank in members if rank not in dumps])
    for rank, numbered in own.items():
        ended = [number for number, step in numbered.items() if step.over]
        if ended:
            state.last[rank] = numbered[max(ended)]
    opened = {rank: place for rank, numbered in own.items() if (place := _first_open(numbered)) is not None}
    furthest = max((max(numbered, default=-1) for numbered in own.values()), default=-1)
    _find_divergence(state, own, min(opened.values(), default=furthest))
    if state.diverged:
        return state
    if opened:
        state.sequence = front = min(opened.values())
        state.waiting = {rank: own[rank][front] for rank, place in opened.items() if place == front}
        state.absent = [rank for rank, numbered in own.items() if rank not in opened and _end(numbered) < front]
        state.passed = [rank for rank, numbered in own.items() if front in numbered and numbered[front].over]
    elif any(_end(numbered) < furthest for numbered in own.values()) and not _marked(own):
        # where ends are not marked, the last call of those that are ahead may be the one that failed
        state.sequence = furthest
        state.waiting = {rank: numbered[furthest] for rank, numbered in own.items() if furthest in numbered}
        state.absent = [rank for rank, numbered in own.items() if _end(numbered) < furthest]
    return state


def _end(numbered: dict[int, Step]) -> int:
    return max(numbered, default=-1)


def _first_open(numbered: dict[int, Step]) -> int | None:
    """The first collective that did not end; a group's run in order, so one behind which another ended did too."""
    ended = max((number for number, step in numbered.items() if step.over), default=-1)
    return min((number for number, step in numbered.items() if number > ended), default=None)


def _marked(own: Steps) -> bool:
    """Whether the backend says which collectives completed."""
    calls = (step.call for numbered in own.values() for step in numbered.values())
    return any(call.state != "scheduled" or call.backend == "nccl" for call in calls)


def _find_divergence(state: GroupState, own: Steps, front: int) -> None:
    """The first place in the order at which ranks called different things."""
    starts = [min(numbered) for numbered in own.values() if numbered]
    if len(starts) < 2:
        return
    ends = max(max(numbered) for numbered in own.values() if numbered)
    for place in range(max(starts), min(ends, front + 1) + 1):
        here = {rank: numbered[place] for rank, numbered in own.items() if place in numbered}
        kinds = _kinds(here, settled=place < front)
        if len(kinds) < 2:
            continue
        counts = Counter({kind: len(ranks) for kind, ranks in kinds.items()})
        (common, most), (_, second) = counts.most_common(2)
        outvoted = [rank for kind, ranks in kinds.items() for rank in ranks if most == second or kind != common]
        state.sequence = place
        state.diverged = {rank: here[rank] for rank in sorted(outvoted)}
        state.agreed = {rank: step for rank, step in here.items() if rank not in state.diverged}
        state.absent, state.waiting = [], {}
        return


def _kinds(here: dict[int, Step], *, settled: bool) -> dict[object, list[int]]:
    """Sort ranks by what must be the same on all of them. Sizes count only where the collective did not complete."""
    names = {step.operation for step in here.values()}
    by_name = len(names) > 1 or settled or bool(names & _UNEVEN)
    found: dict[object, list[int]] = defaultdict(list)
    for rank, step in here.items():
        found[step.operation if by_name else step.shape].append(rank)
    return found


# -- point to point ------------------------------------------------------------------------------------------------


def _exchanges(dumps: dict[int, Dump], identity: _groups_of) -> dict[Group, dict[int, list[Call]]]:
    """For each group: the sends and receives that each rank did not get out of."""
    found: dict[Group, dict[int, list[Call]]] = defaultdict(lambda: defaultdict(list))
    for rank, dump in dumps.items():
        marking = _marks_ends(dump.calls)
        for own in _by_group(dump, p2p=True):
            batches = _numbered(own)
            ended = max((number for number, calls in batches.items() if _over(calls[-1], marking)), default=-1)
            for number, calls in batches.items():
                if number > ended:
                    found[identity(own[0].group, rank)][rank] += calls
    return found


def _exchange(group: Group, calls: dict[int, list[Call]], dumps: dict[int, Dump], attempt: int | None) -> GroupState:
    """Who waits for a partner that does not wait itself."""
    members = sorted(set(group.ranks) | set(calls))
    state = GroupState(group, attempt, members, unseen=[rank for rank in members if rank not in dumps])
    partners: set[int] = set()
    for rank, own in calls.items():
        state.waiting[rank] = Step(own, False)
        for call in own:
            partner = _partner(call)
            if partner is not None:
                partners.add(group.ranks[partner] if partner < len(group.ranks) else partner)
    state.absent = sorted(rank for rank in partners if rank in dumps and rank not in state.waiting)
    state.unseen = sorted(rank for rank in partners if rank not in dumps)
    return state


def _partner(call: Call) -> int | None:
    """The group rank of the other side: the part of "0->1" or "1<-0" behind the arrow."""
    for arrow in ("->", "<-"):
        _, found, other = call.target.partition(arrow)
        if found and other.isdecimal() and len(other) < 8:
            return int(other)
    return None


# -- across groups -------------------------------------------------------------------------------------------------


def _follow(states: list[GroupState]) -> None:
    """A rank that is absent because it waits in another group is a victim: follow to those that wait nowhere."""
    waiting = {rank for state in states for rank in state.waiting}
    loose = {rank for state in states for rank in state.absent} - waiting
    for state in states:
        elsewhere = [rank for rank in state.absent if rank in waiting]
        if not elsewhere:
            continue
        if loose or any(other.unseen for other in states if set(elsewhere) & set(other.waiting)):
            state.absent = [rank for rank in state.absent if rank not in waiting]
        else:
            state.crossed = True
