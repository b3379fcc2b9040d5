"""Finds out which rank, node and process each event is about, from everything any source says.

Several witnesses, one answer: torch's ``[rankN]:`` marks, announcements ("rank=3 ... pid=4711"), launcher
summaries, NCCL's communicator lines, a scheduler's task labels, paths. Local and group ranks are turned into
global ones only through a witness; where none speaks, the rank stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from logforensics.model import Event
from logforensics.nodes import hosts_of, ranks_of_nodes
from logforensics.reader import RawEvent, Reading

# Nobody builds nodes with more accelerators than this often enough to assume one.
_USUAL_NODE = 8
_OUTSIDE = {"launcher", "scheduler", "kernel"}
_LAUNCHER_DIALECTS = ("torchelastic/", "deepspeed/", "accelerate/")


@dataclass(slots=True)
class Identity:
    """What is known of the run's members.

    Maps are keyed by *place*: a folder or file that is one node's, or the lines of one host in a file of several.
    ``node_ranks`` gives all ranks of a host, where that follows from what is known.
    """

    world_size: int | None = None
    pid_rank: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    place_pid_rank: dict[tuple[str, int], int] = field(default_factory=dict)
    # by pid, then by place
    pid_local: dict[int, dict[str, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # pid -> place -> local rank
    local_rank: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    rank_local: dict[int, int] = field(default_factory=dict)
    rank_node: dict[int, str] = field(default_factory=dict)
    rank_pid: dict[int, int] = field(default_factory=dict)
    source_rank: dict[str, int] = field(default_factory=dict)
    place_node: dict[str, str] = field(default_factory=dict)
    group_ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)  # global ranks, in the group's order
    node_ranks: dict[str, list[int]] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)  # sources in which several hosts write
    tasks_are_nodes: bool = False
    conflicts: list[str] = field(default_factory=list)

    def rank_of_pid(self, pid: int | None, place: str = "") -> int | None:
        """Return the one rank that a pid belongs to; None when unknown or when two nodes use the same pid."""
        if pid is not None and (place, pid) in self.place_pid_rank:
            return self.place_pid_rank[place, pid]
        ranks = self.pid_rank.get(pid, set()) if pid is not None else set()
        return next(iter(ranks)) if len(ranks) == 1 else None


def resolve_identity(readings: list[Reading]) -> Identity:
    """Join what all sources say, fill the events' rank, node and pid in place, and return the maps."""
    identity = Identity()
    identity.world_size = announced_size(readings)
    identity.mixed = {reading.source.name for reading in readings if len(hosts_of(reading)) > 1}
    _groups(identity, readings)
    _world_communicator(identity, readings)
    for reading in readings:
        _witness(identity, reading)
    identity.tasks_are_nodes = _tasks_are_nodes(readings, identity.world_size)
    _ranks_of_sources(identity, readings)
    _assume_one_node(identity, readings)
    for reading in readings:
        for raw in reading.events:
            _assign(identity, reading, raw)
    _ranks_of_buses(readings)
    identity.node_ranks = ranks_of_nodes(identity, readings)
    _ranks_of_devices(identity, readings)
    return identity


def _ranks_of_devices(identity: Identity, readings: list[Reading]) -> None:
    """A line that names its host and its GPU there is about the rank that has this place on the host."""
    for raw in (raw for reading in readings for raw in reading.events):
        event, host = raw.event, raw.written_by.get("host") or raw.event.node
        local = event.local_rank if event.local_rank is not None else _own_device(event)
        members = identity.node_ranks.get(host or "", [])
        if event.rank is None and local is not None and local < len(members) and event.stream not in _OUTSIDE:
            event.rank = members[local]


def _own_device(event: Event) -> int | None:
    """The GPU that an out-of-memory error names; 0 says nothing, a process that sees one GPU calls it so."""
    return event.fields.get("device") or None if event.category == "cuda_oom" else None


def announced_size(readings: Iterable[Reading]) -> int | None:
    """Return how many ranks the run has, by its own lines and dumps; None when none says."""
    events = (raw.event for reading in readings for raw in reading.events)
    sizes = [event.fields["world_size"] for event in events if event.fields.get("world_size")]
    if not sizes:  # each launcher says how many there are, and how many processes it starts
        launchers = (raw.event.fields for reading in readings for raw in reading.events)
        sizes = [f["nodes"] * f["local_world_size"] for f in launchers if f.get("nodes") and f.get("local_world_size")]
    return max(sizes, default=None)


def _groups(identity: Identity, readings: list[Reading]) -> None:
    """Take the members of process groups from the flight recorder; a name that stands for several says nothing."""
    found: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for reading in readings:
        for group in reading.dump.groups.values() if reading.dump else ():
            if group.name and group.ranks:
                found[group.label].add(group.ranks)
                found[group.name].add(group.ranks)
    identity.group_ranks = {name: known.pop() for name, known in found.items() if len(known) == 1}


def _world_communicator(identity: Identity, readings: list[Reading]) -> None:
    """The NCCL communicator of all ranks counts them as the run does.

    Several groups of that size, or one size that is only the largest group's, show by two processes in one place.
    """
    joined: dict[int, list[RawEvent]] = defaultdict(list)
    for raw in (raw for reading in readings for raw in reading.events):
        event = raw.event
        if event.stream == "nccl" and event.kind == "init" and event.fields.get("world_size") == identity.world_size:
            joined[event.fields.get("group_rank", -1)].append(raw)
    if all(len({(raw.event.node, raw.event.pid) for raw in found}) == 1 for found in joined.values()):
        for rank, found in joined.items():
            for raw in found:
                if raw.event.rank is None and rank >= 0:
                    raw.event.rank = rank


def _place(identity: Identity, reading: Reading, raw: RawEvent) -> str:
    """The key of the node of a line: the launcher's folder of a tree, the file itself, or a host's part of it."""
    hints, name = reading.source.hints, reading.source.name
    if name in identity.mixed and "host" in raw.written_by:
        return f"{name}@{raw.written_by['host']}"
    return hints.group if hints.local_rank is not None else name


def _parents(place: str) -> Iterable[str]:
    yield place
    while place:
        place = place.rstrip("/").rpartition("/")[0]
        yield place


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _witness(identity: Identity, reading: Reading) -> None:
    """Take every statement of one source that names two of rank, local rank, pid and host together."""
    for raw in reading.events:
        event, by = raw.event, raw.written_by
        place = _place(identity, reading, raw)
        rank = event.rank
        if rank is None:
            # "failed (exitcode: 1) local_rank: 0 (pid: 4711)": which process, not yet which rank
            if event.pid is not None and event.local_rank is not None:
                identity.pid_local[event.pid][place] = event.local_rank
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
        marked = "mark" in event.told and "pid" in by and event.stream not in {"scheduler", "kernel"}
        if pid is not None and (marked or event.kind in {"init", "exit", "config"} or "pid" in event.told):
            identity.pid_rank[pid].add(rank)
            identity.place_pid_rank[place, pid] = rank
            identity.rank_pid[rank] = pid
        host = event.node
        if host and (subject or event.stream == "nccl" or "host" in by):
            identity.rank_node.setdefault(rank, host)
            if subject and "host" in event.told:
                identity.place_node.setdefault(place, host)


def _conflict(identity: Identity, text: str) -> None:
    if text not in identity.conflicts and len(identity.conflicts) < 20:
        identity.conflicts.append(text)


def _bus_number(bus_id: str) -> int | None:
    """Return a GPU's place on the PCI bus as NCCL writes it: 0000:5d:00 and 5d000 are the same."""
    parts = bus_id.replace(".", ":").split(":")
    try:
        if len(parts) == 1:
            return int(bus_id, 16)
        domain, bus, device = (int(part, 16) for part in (parts if len(parts[0]) >= 4 else ["0", *parts])[:3])
    except ValueError:
        return None
    return domain << 20 | bus << 12 | device << 4


def _ranks_of_buses(readings: list[Reading]) -> None:
    """A kernel line names a GPU by its bus; NCCL's communicator lines say which rank uses that bus."""
    users: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    about: list[tuple[RawEvent, int]] = []
    for reading in readings:
        for raw in reading.events:
            number = _bus_number(str(raw.event.fields.get("bus_id", "")))
            if number is None:
                continue
            if raw.event.rank is not None and raw.event.stream == "nccl":
                users[raw.event.node, number].add(raw.event.rank)
                users[None, number].add(raw.event.rank)
            elif raw.event.rank is None:
                about.append((raw, number))
    for raw, number in about:
        known = users.get((raw.event.node, number), set())  # the same slot of another node is another GPU
        if len(known) == 1:
            raw.event.rank = next(iter(known))


def _tasks_are_nodes(readings: list[Reading], world_size: int | None) -> bool:
    """A scheduler's task is a node when each node runs one launcher: the launcher's own lines carry the label."""
    tasks: set[int] = set()
    ranks: dict[int, set[int]] = defaultdict(set)
    for own, raw in ((reading, raw) for reading in readings for raw in reading.events):
        task = raw.written_by.get("task", own.source.hints.task)
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
        if hints.local_rank is None and not hints.one_process:
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
            if hints.local_rank is not None:
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
    if nodes - {"node0"} or len(groups) > 1 or len(hosts) > 1 or identity.mixed:
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
    place = _place(identity, reading, raw)
    if event.rank is None:
        event.rank = _rank_for(identity, reading, raw, place)
    name = reading.source.name
    if event.rank is None and name in identity.source_rank and event.stream not in {"launcher", "scheduler", "kernel"}:
        event.rank = identity.source_rank[name]
    if event.local_rank is None:
        known = identity.rank_local.get(event.rank) if event.rank is not None else None
        event.local_rank = hints.local_rank if hints.local_rank is not None else known
    if event.node is None:
        if event.rank is not None and event.rank in identity.rank_node:
            event.node = identity.rank_node[event.rank]
        else:
            said = (identity.place_node[key] for key in _parents(place) if key in identity.place_node)
            event.node = next(said, hints.node)
    if event.pid is None and event.rank is not None:
        event.pid = identity.rank_pid.get(event.rank)


def _rank_for(identity: Identity, reading: Reading, raw: RawEvent, place: str) -> int | None:
    event, by, hints = raw.event, raw.written_by, reading.source.hints
    subject_pid = "pid" in event.told
    if event.pid is not None and (subject_pid or event.stream == "nccl" or "pid" in by):
        rank = identity.rank_of_pid(event.pid, place)
        if rank is not None:
            return rank
        known = identity.pid_local.get(event.pid, {})
        at = place if place in known else next(iter(known)) if len(known) == 1 else None
        if event.local_rank is None and at is not None:
            return _global_of_local(identity, at, known[at])
        if subject_pid and event.local_rank is None:
            return None  # it is about that process, not about the one who wrote the line
    local = event.local_rank if event.local_rank is not None else hints.local_rank
    local = _own_device(event) if local is None else local
    if local is not None:
        rank = _global_of_local(identity, place, local)
        if rank is not None:
            return rank
    task = event.fields.get("task", by.get("task", hints.task))
    if task is not None and not identity.tasks_are_nodes:
        return int(task)
    group_rank = event.fields.get("group_rank")
    group = event.process_group or ""
    members = identity.group_ranks.get(group, ())
    if group_rank is not None and hints.local_rank is None and hints.rank is None and 0 <= group_rank < len(members):
        event.told.add("group")
        return int(members[int(group_rank)])
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
