"""Folds the lanes of a large run's timeline: ranks that nobody blames share a lane by node and fate."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from logforensics.language import list_ranks, several
from logforensics.model import FATES, RankState
from logforensics.paths import natural
from logforensics.render.names import name_list
from logforensics.render.text import clean, cut

# Up to this many ranks each has its own lane.
FOLD_ABOVE = 64
# As many folded lanes are looked at without scrolling for long; beyond it nodes of one fate share a lane.
_MOST_LANES = 40
_MOST_APART = 12
_MOST_NAMES = 60


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: ``keys`` are the ranks in it."""

    label: str
    note: str
    fate: str
    keys: list[int]


def folded_lanes(states: Iterable[RankState], apart: Collection[int]) -> list[Lane]:
    """Return the lanes, first those of ``apart`` (ranks that the verdict speaks of), then by fate and node."""
    own: list[RankState] = []
    groups: dict[tuple[str, str], list[RankState]] = {}
    for state in states:
        if state.rank in apart and len(own) < _MOST_APART:
            own.append(state)
        else:
            groups.setdefault((state.fate, state.node or ""), []).append(state)
    if len(groups) > _MOST_LANES:
        merged: dict[str, list[RankState]] = {}
        for (fate, _node), members in groups.items():
            merged.setdefault(fate, []).extend(members)
        groups = {(fate, ""): members for fate, members in merged.items()}
    order = {fate: number for number, fate in enumerate(FATES)}
    ordered = sorted(groups.items(), key=lambda item: (order.get(item[0][0], 99), natural(item[0][1])))
    lanes = [_lane([state], state.fate) for state in own]
    return lanes + [_lane(members, fate) for (fate, _node), members in ordered]


def _lane(members: list[RankState], fate: str) -> Lane:
    ranks = sorted(state.rank for state in members)
    nodes = {clean(state.node) for state in members if state.node}
    named = cut(list_ranks(ranks), _MOST_NAMES)
    count = several("{count} rank", "{count} ranks", len(ranks)).format(count=len(ranks))
    return Lane(
        label=several("rank {ranks}", "ranks {ranks}", 1).format(ranks=named) if len(ranks) == 1 else count,
        note=name_list(nodes, _MOST_NAMES) if nodes else named,
        fate=fate if fate in FATES else "unknown",
        keys=ranks,
    )
