"""What the logs state of the environment - versions, sizes, addresses - and where ranks or nodes differ in it.

Something that should be the same everywhere and is not comes first: it is often the cause, and never seen in
one rank's log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logforensics.language import list_ranks, several
from logforensics.model import Event
from logforensics.render.names import name_list
from logforensics.render.text import clean, cut

# Captured fields that state a fact of the environment by themselves.
_FACTS = ("world_size", "local_world_size", "nodes", "address", "port", "interface", "hca", "dtype", "timeout_s")
# These differ between nodes by their nature.
_OWN = {"node_rank", "rank", "pid", "local_rank"}
_MOST_ROWS = 60
_MOST_VALUE = 200
_MOST_WHO = 80


@dataclass(frozen=True, slots=True)
class Stated:
    """One value, who states it, and where the first statement is (an event's id)."""

    value: str
    who: str
    event_id: int


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """One fact. More than one value means that the run's members differ in it."""

    name: str
    values: list[Stated]

    @property
    def differs(self) -> bool:
        """Whether the logs state more than one value."""
        return len(self.values) > 1


def environment_rows(events: Iterable[Event]) -> list[EnvironmentRow]:
    """Return the facts, those that differ first; only lines that state a fact are asked, no error text."""
    found: dict[str, dict[str, list[Event]]] = {}
    for event in events:
        if event.role == "context":
            for name, value in _facts(event):
                found.setdefault(name, {}).setdefault(value, []).append(event)
    rows = [
        EnvironmentRow(
            clean(name.replace("_", " "), _MOST_VALUE),
            [
                Stated(clean(value, _MOST_VALUE), _who(tellers), tellers[0].event_id)
                for value, tellers in values.items()
            ],
        )
        for name, values in found.items()
    ]
    rows.sort(key=lambda row: (not row.differs, row.name))
    return rows[:_MOST_ROWS]


def _facts(event: Event) -> Iterator[tuple[str, str]]:
    fields = event.fields
    name, version, value = fields.get("name"), fields.get("version"), fields.get("value")
    if version:
        yield str(name or event.signature.rpartition("/")[2]), str(version)
    elif name and value is not None and name not in _OWN:
        yield str(name), str(value)
    elif value is not None and event.kind == "config":
        yield event.signature.rpartition("/")[2].replace("-", " "), str(value)
    for fact in _FACTS:
        if fields.get(fact) is not None:
            yield fact, str(fields[fact])


def _who(tellers: list[Event]) -> str:
    ranks = sorted({event.rank for event in tellers if event.rank is not None})
    nodes = {event.node for event in tellers if event.node}
    if ranks:
        return several("rank {ranks}", "ranks {ranks}", len(ranks)).format(ranks=cut(list_ranks(ranks), _MOST_WHO))
    return clean(name_list(nodes, _MOST_WHO))
