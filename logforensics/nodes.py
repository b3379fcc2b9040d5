"""Which ranks live on which host: as launchers say it, or as it follows from their counting ranks node by node."""

from __future__ import annotations

from collections import defaultdict
from math import gcd
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from logforensics.identity import Identity
    from logforensics.reader import Reading

_USUAL = (2, 4, 8, 16)  # accelerators in a node
# DeepSpeed's launcher prints {'node-1': [0, 1], 'node-2': [2, 3]} (deepspeed/launcher/launch.py).
_MAP_ENTRY = regex.compile(r"'([^']{1,200})':\s\[([\d,\s]*)\]")


def hosts_of(reading: Reading) -> set[str]:
    """Return the hosts that the prefixes of a file's lines name."""
    return {raw.written_by["host"] for raw in reading.events if "host" in raw.written_by}


def ranks_of_nodes(identity: Identity, readings: list[Reading]) -> dict[str, list[int]]:
    """Return the ranks of every host for which they are known for sure."""
    found: dict[str, list[int]] = {}
    by_host: dict[str, set[int]] = defaultdict(set)
    for reading in readings:
        for raw in reading.events:
            if raw.event.signature == "deepspeed/rank-mapping":
                for host, ranks in _MAP_ENTRY.findall(str(raw.event.fields.get("value", ""))):
                    found[host] = [int(rank) for rank in ranks.replace(",", " ").split()]
            host = raw.written_by.get("host")
            if host and raw.event.stream not in {"kernel", "scheduler"}:
                ranks = by_host[host]
                if raw.event.rank is not None and raw.event.stream != "launcher":
                    ranks.add(raw.event.rank)
    for rank, host in identity.rank_node.items():
        by_host[host].add(rank)
    return found or _counted(identity, readings, by_host)


def _counted(identity: Identity, readings: list[Reading], by_host: dict[str, set[int]]) -> dict[str, list[int]]:
    """Launchers give each node a block of ranks; all blocks are of one size."""
    first = _started(readings)
    for place, known in identity.local_rank.items():
        offsets = {rank - local for local, rank in known.items()}
        host = place.rpartition("@")[2] if "@" in place else identity.place_node.get(place)
        if host and len(offsets) == 1:
            first[host] = offsets.pop()
    size = _block_size(identity, readings, by_host, set(first.values()))
    if not size:
        return {}
    for host, ranks in by_host.items():
        starts = {rank - rank % size for rank in ranks}
        if len(starts) == 1:
            first.setdefault(host, starts.pop())
    found = {host: list(range(start, start + size)) for host, start in first.items() if start % size == 0}
    # one host left, and one block left: they belong together
    left = [host for host in by_host if host not in found]
    blocks = set(range(0, identity.world_size or size * len(by_host), size)) - {ranks[0] for ranks in found.values()}
    if len(left) == 1 and len(blocks) == 1:
        start = blocks.pop()
        found[left[0]] = list(range(start, start + size))
    return found


def _started(readings: list[Reading]) -> dict[str, int]:
    """Return the first rank of each host whose launcher says which node it is, and how many ranks a node has."""
    return {
        raw.event.node: raw.event.fields["node_rank"] * raw.event.fields["local_world_size"]
        for reading in readings
        for raw in reading.events
        if raw.event.node and "node_rank" in raw.event.fields and raw.event.fields.get("local_world_size")
    }


def _block_size(
    identity: Identity, readings: list[Reading], by_host: dict[str, set[int]], starts: set[int]
) -> int | None:
    """How many ranks each node has: as said, by division, by the distance of the blocks, or as many as one shows."""
    sizes = {
        raw.event.fields["local_world_size"]
        for reading in readings
        for raw in reading.events
        if raw.event.fields.get("local_world_size")
    }
    if len(sizes) == 1:
        return int(sizes.pop())
    whole = {len(ranks) for ranks in by_host.values() if len(ranks) in _USUAL and min(ranks) % len(ranks) == 0}
    if len(by_host) > 1 and whole == {len(ranks) for ranks in by_host.values()}:
        return max(whole)  # between two nodes whose logs are here there may be others
    if identity.world_size and len(by_host) > 1 and identity.world_size % len(by_host) == 0:
        return identity.world_size // len(by_host)
    distance = gcd(*starts) if len(starts) > 1 else 0
    if distance:
        return distance
    full = [ranks for ranks in by_host.values() if len(ranks) == max(whole, default=0)]
    return whole.pop() if len(whole) == 1 and all(max(r) - min(r) + 1 == len(r) for r in full) else None
