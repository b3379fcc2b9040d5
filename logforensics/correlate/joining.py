"""Who never came: a store that counts its clients, and the nodes that the missing ranks make up."""

from __future__ import annotations

from logforensics.correlate.collectives import Stuck
from logforensics.correlate.facts import Facts
from logforensics.correlate.incident import Incident
from logforensics.language import _


def never_joined(stuck: Stuck, facts: Facts) -> Incident | None:
    """Return the incident of a store that counted too few: some never started, or never got there."""
    events = [call.event for call in sorted(stuck.calls, key=lambda call: call.event.event_id)]
    counted = next((e for e in events if "joined" in e.fields and e.category not in {None, "unknown_timeout"}), None)
    if counted is None or facts.trained:
        return None
    joined, size = counted.fields["joined"], counted.fields.get("world_size") or facts.world_size or 0
    absent = _who_never_came(size - joined, size, facts, stuck.absent)
    lone = size - joined == 1 and joined > 1  # its neighbours came, so its node is there
    return Incident(
        "barrier_timeout" if lone else counted.category or "missing_node",
        [counted, *(event for event in events if event is not counted)],
        absent,
        "never-joined",
        why=[_("only {joined} of {size} processes ever joined").format(joined=joined, size=size)],
        confidence="medium",
    )


def _who_never_came(count: int, size: int, facts: Facts, absent: list[int]) -> list[int]:
    """The ranks of which nothing is seen, if they are as many; else the one block of a node's size without a sign."""
    if len(absent) == count:
        return absent
    unseen = [rank for rank in range(size) if rank not in facts.ranks]
    if len(unseen) == count:
        return unseen
    if count < 1 or size % count:
        return []
    blocks = [list(range(start, start + count)) for start in range(0, size, count)]
    empty = [block for block in blocks if not any(rank in facts.ranks for rank in block)]
    return empty[0] if len(empty) == 1 else []


def whole_node(absent: list[int], facts: Facts) -> bool:
    """Return whether the absent ranks are exactly the ranks of one node (or of several)."""
    if len(absent) < 2 or facts.trained:
        return False
    nodes = {facts.identity.rank_node.get(rank) for rank in absent}
    if None not in nodes:
        members = {rank for rank, node in facts.identity.rank_node.items() if node in nodes}
        return members == set(absent) and len(members) < len(facts.expected)
    size = len(absent)
    block = absent == list(range(absent[0], absent[0] + size))
    return block and absent[0] % size == 0 and len(facts.expected) % size == 0 and size < len(facts.expected)
