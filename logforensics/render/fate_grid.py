"""The fates of all ranks as a map: one tile a node, one cell a rank, so that a glance shows which node is odd.

Beyond ``MOST_TILES`` nodes, those whose ranks all met one fate share a tile, which names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logforensics.language import _, list_ranks, several
from logforensics.model import FATES, RankState
from logforensics.paths import natural
from logforensics.render.names import name_list
from logforensics.render.text import clean, cut
from logforensics.render.words import FATE_SIGNS

MOST_TILES = 64
# Up to this many ranks each cell has room for the rank's number; beyond it only for the sign.
_MOST_NUMBERED = 96
_MOST_NAMES = 300
# So few nodes of one fate are odd ones: each keeps its tile.
_FEW = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank, or all ranks of a shared tile."""

    ranks: str
    fate: str
    sign: str
    words: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Tile:
    """One node, or several whose ranks all met the same fate."""

    name: str
    nodes: int
    ranks: str
    cells: list[Cell]
    origin: bool


@dataclass(frozen=True, slots=True)
class FateGrid:
    """The whole map and its legend; ``numbered`` says whether cells show rank numbers."""

    tiles: list[Tile]
    legend: list[Cell]
    numbered: bool
    folded: int


def fate_grid(states: Iterable[RankState], words: dict[str, str]) -> FateGrid:
    """Return the map of the ranks; ``words`` names each fate."""
    nodes: dict[str, list[RankState]] = {}
    every = sorted(states, key=lambda state: state.rank)
    for state in every:
        nodes.setdefault(state.node or "", []).append(state)
    order = sorted(nodes, key=lambda name: (name == "", natural(name)))
    tiles: list[Tile] = []
    alike: dict[tuple[str, int], list[str]] = {}
    for name in order:
        members = nodes[name]
        fates = {state.fate for state in members}
        if len(order) > MOST_TILES and len(fates) == 1 and fates != {"origin"}:
            alike.setdefault((members[0].fate, len(members)), []).append(name)
        else:
            tiles.append(_tile(name, members, words))
    for _key, names in sorted(alike.items(), key=lambda item: len(item[1])):
        if len(names) < _FEW:
            tiles += [_tile(name, nodes[name], words) for name in names]
        else:
            tiles.append(_shared(names, [state for name in names for state in nodes[name]], words))
    return FateGrid(
        tiles=tiles,
        legend=_legend(every, words),
        numbered=len(every) <= _MOST_NUMBERED,
        folded=sum(len(names) for names in alike.values() if len(names) >= _FEW),
    )


def _cell(members: list[RankState], words: dict[str, str]) -> Cell:
    fate = members[0].fate
    return Cell(
        ranks=cut(list_ranks([state.rank for state in members]), _MOST_NAMES),
        fate=fate,
        sign=FATE_SIGNS.get(fate, "?"),
        words=words.get(fate, fate),
        count=len(members),
    )


def _tile(name: str, members: list[RankState], words: dict[str, str]) -> Tile:
    return Tile(
        name=clean(name) if name else _("node not named"),
        nodes=1,
        ranks=cut(list_ranks([state.rank for state in members]), _MOST_NAMES),
        cells=[_cell([state], words) for state in members],
        origin=any(state.fate == "origin" for state in members),
    )


def _shared(names: list[str], members: list[RankState], words: dict[str, str]) -> Tile:
    count = several("{count} node", "{count} nodes", len(names)).format(count=len(names))
    named = name_list([clean(name) for name in names if name], _MOST_NAMES) or _("not named")
    return Tile(
        name=f"{count}: {named}",
        nodes=len(names),
        ranks=cut(list_ranks([state.rank for state in members]), _MOST_NAMES),
        cells=[_cell(members, words)],
        origin=False,
    )


def _legend(states: list[RankState], words: dict[str, str]) -> list[Cell]:
    met: dict[str, list[RankState]] = {}
    for state in states:
        met.setdefault(state.fate, []).append(state)
    order = {fate: number for number, fate in enumerate(FATES)}
    return [_cell(met[fate], words) for fate in sorted(met, key=lambda fate: order.get(fate, len(order)))]
