"""Finds out which rank, node and process each event is about, from everything any source says.

Several witnesses, one answer: torch's ``[rankN]:`` marks, announcements ("rank=3 ... pid=4711"), launcher
summaries, NCCL's communicator lines, a scheduler's task labels, paths. Local and group ranks are turned into
global ones only through a witness; where none speaks, the rank stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from logforensics.reader import RawEvent, Reading

# Nobody builds nodes with more accelerators than this often enough to assume one.
_USUAL_NODE = 8
_LAUNCHER_DIALECTS = ("torchelastic/", "deepspeed/", "accelerate/")


@dataclass(slots=True)
class Identity:
    """What is known of the run's members. Maps are keyed by *place*: a folder or file that is one node's."""

    world_size: int | None = None
    pid_rank: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    pid_local: dict[int, int] = field(default_factory=dict)
    local_rank: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    rank_local: dict[int, int] = field(default_factory=dict)
    rank_node: dict[int, str] = field(default_factory=dict)
    rank_pid: dict[int, int] = field(default_factory=dict)
    source_rank: dict[str, int] = field(default_factory=dict)
    place_node: dict[str, str] = field(default_factory=dict)
    tasks_are_nodes: bool = False
    conflicts: list[str] = field(default_factory=list)

    def rank_of_pid(self, pid: int | None) -> int | None:
        """Return the one rank that a pid belongs to; None when unknown or when two nodes use the same pid."""
        ranks = self.pid_rank.get(pid, set()) if pid is not None else set()
        return next(iter(ranks)) if len(ranks) == 1 else None


def resolve_identity(readings: list[Reading]) -> Identity:
    """Join what all sources say, fill the events' rank, node and pid in place, and return the maps."""
    identity = Identity()
    events = [raw for reading in readings for raw in reading.events]
    identity.world_size = _world_size(events)
    for reading in readings:
        _witness(identity, reading)
    identity.tasks_are_nodes = _tasks_are_nodes(events, identity.world_size)
    _ranks_of_sources(identity, readings)
    _assume_one_node(identity, readings)
    for reading in readings:
        for raw in reading.events:
            _assign(identity, reading, raw)
    return identity


def _world_size(events: Iterable[RawEvent]) -> int | None:
    sizes = [raw.event.fields["world_size"] for raw in events if raw.event.fields.get("world_size")]
    return max(sizes) if sizes else None


def _place(reading: Reading) -> str:
    """The key of the node that a source belongs to: the launcher's folder of a tree, else the file itself."""
    hints = reading.source.hints
    return hints.group if hints.local_rank is not None else reading.source.name


def _parents(place: str) -> Iterable[str]:
    yield place
    while place:
        place = place.rstrip("/").rpartition("/")[0]
        yield place


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _witness(identity: Identity, reading: Reading) -> None:
    """Take every statement of one source that names two of rank, local rank, pid and host together."""
    place = _place(reading)
    for raw in reading.events:
        event, by = raw.event, raw.written_by
        rank = event.rank
        if rank is None:
            # "failed (exitcode: 1) local_rank: 0 (pid: 4711)": which process, not yet which rank
            if event.pid is not None and event.local_rank is not None:
                identity.pid_local[event.pid] = event.local_rank
            continue
        subject = "rank" in event.told
        local = event.local_rank if subject else by.get("local_rank", event.local_rank)
        if local is not None and (subject == ("local_rank" in event.told) or "local_rank" in by):
            known = identity.local_rank[place].setdefault(local, rank)
            if known != rank:
                _conflict(identity, f"{place}: local rank {local} is rank {known} and rank {rank}")
            else:
                identity.rank_local[rank] = local
        pid = event.pid if not subject or "pid" in event.told else None
        if pid is not None and (event.kind in {"init", "exit", "config"} or "pid" in event.told):
            identity.pid_rank[pid].add(rank)
            identity.rank_pid[rank] = pid
        host = event.node
        if host and (subject or event.stream == "nccl" or "host" in by):
            identity.rank_node.setdefault(rank, host)
            if subject and "host" in event.told:
                identity.place_node.setdefault(place, host)


def _conflict(identity: Identity, text: str) -> None:
    if text not in identity.conflicts and len(identity.conflicts) < 20:
        identity.conflicts.append(text)


def _tasks_are_nodes(events: list[RawEvent], world_size: int | None) -> bool:
    """A scheduler's task is a node when each node runs one launcher: the launcher's own lines carry the label."""
    tasks: set[int] = set()
    ranks: dict[int, set[int]] = defaultdict(set)
    for raw in events:
        task = raw.written_by.get("task")
        if task is None:
            continue
        tasks.add(task)
        if raw.event.signature.startswith(_LAUNCHER_DIALECTS):
            return True
        if raw.event.rank is not None and "rank" in raw.written_by:
            ranks[task].add(raw.event.rank)
    if any(found != {task} for task, found in ranks.items()):
        return True
    return bool(world_size and tasks and max(tasks) + 1 < world_size and len(tasks) < world_size // 2)


def _ranks_of_sources(identity: Identity, readings: list[Reading]) -> None:
    """A per-rank file belongs to one rank: from its name, or from the marks inside it."""
    for reading in readings:
        hints = reading.source.hints
        if hints.rank is not None:
            identity.source_rank[reading.source.name] = hints.rank
            continue
        if hints.local_rank is None:
            continue
        marks = {
            raw.event.rank
            for raw in reading.events
            if raw.event.rank is not None
            and ("mark" in raw.event.told or raw.written_by.get("rank") == raw.event.rank or raw.event.kind == "init")
        }
        if len(marks) == 1:
            rank = marks.pop()
            identity.source_rank[reading.source.name] = rank
            identity.local_rank[hints.group].setdefault(hints.local_rank, rank)
            identity.rank_local.setdefault(rank, hints.local_rank)
    # what one launcher's file in a folder says holds for the tree below that folder
    owners: dict[str, list[str]] = defaultdict(list)
    for reading in readings:
        name = reading.source.name
        if reading.source.hints.local_rank is None and identity.local_rank.get(name):
            owners[_folder(name)].append(name)
    for folder, names in owners.items():
        if len(names) == 1:
            for local, rank in identity.local_rank[names[0]].items():
                identity.local_rank[folder].setdefault(local, rank)


def _assume_one_node(identity: Identity, readings: list[Reading]) -> None:
    """With one node, local and global ranks are the same: assumed only when nothing hints at a second one."""
    pairs = [(local, rank) for known in identity.local_rank.values() for local, rank in known.items()]
    nodes = {reading.source.hints.node for reading in readings if reading.source.hints.node}
    groups = {reading.source.hints.group for reading in readings if reading.source.hints.local_rank is not None}
    hosts = set(identity.rank_node.values())
    ranks = {raw.event.rank for reading in readings for raw in reading.events if raw.event.rank is not None}
    if any(local != rank for local, rank in pairs):
        return
    if nodes - {"node0"} or len(groups) > 1 or len(hosts) > 1:
        return
    if max(ranks, default=0) >= _USUAL_NODE or (identity.world_size or 0) > _USUAL_NODE:
        return
    known = identity.local_rank[""]
    for local in range(_USUAL_NODE):
        known.setdefault(local, local)


def _global_of_local(identity: Identity, place: str, local: int) -> int | None:
    for key in _parents(place):
        known = identity.local_rank.get(key)
        if not known:
            continue
        if local in known:
            return known[local]
        # ranks of a node are contiguous under every launcher: two agreeing witnesses give the rest
        offsets = {rank - own for own, rank in known.items()}
        if len(offsets) == 1 and (len(known) > 1 or 0 in offsets):
            return local + offsets.pop()
    return None


def _assign(identity: Identity, reading: Reading, raw: RawEvent) -> None:
    event, hints = raw.event, reading.source.hints
    place = _place(reading)
    if event.rank is None:
        event.rank = _rank_for(identity, reading, raw, place)
    name = reading.source.name
    if event.rank is None and name in identity.source_rank and event.stream not in {"launcher", "scheduler", "kernel"}:
        event.rank = identity.source_rank[name]
    if event.local_rank is None and event.rank is not None:
        event.local_rank = hints.local_rank if hints.local_rank is not None else identity.rank_local.get(event.rank)
    if event.node is None:
        if event.rank is not None and event.rank in identity.rank_node:
            event.node = identity.rank_node[event.rank]
        else:
            event.node = hints.node or next(
                (identity.place_node[key] for key in _parents(place) if key in identity.place_node), None
            )
    if event.pid is None and event.rank is not None:
        event.pid = identity.rank_pid.get(event.rank)


def _rank_for(identity: Identity, reading: Reading, raw: RawEvent, place: str) -> int | None:
    event, by, hints = raw.event, raw.written_by, reading.source.hints
    subject_pid = "pid" in event.told
    if event.pid is not None and (subject_pid or event.stream == "nccl" or "pid" in by):
        rank = identity.rank_of_pid(event.pid)
        if rank is not None:
            return rank
        if event.local_rank is None and event.pid in identity.pid_local:
            return _global_of_local(identity, place, identity.pid_local[event.pid])
        if subject_pid and event.local_rank is None:
            return None  # it is about that process, not about the one who wrote the line
    local = event.local_rank if event.local_rank is not None else hints.local_rank
    if local is not None:
        rank = _global_of_local(identity, place, local)
        if rank is not None:
            return rank
    task = event.fields.get("task", by.get("task"))
    if task is not None and not identity.tasks_are_nodes:
        return int(task)
    group_rank = event.fields.get("group_rank")
    group = event.process_group or ""
    if (
        group_rank is not None
        and hints.local_rank is None
        and hints.rank is None
        and (not group or "default_pg" in group or group == "0")
    ):
        # the world group's rank is the global one; older lines name no group, and most runs have only one
        event.told.add("group")
        return int(group_rank)
    return None
