"""The files that were read: one row each, like ones of a large run folded into one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from logforensics.model import Event
from logforensics.render.text import clean, size
from logforensics.sources import Source

# Up to this many files each has its own row.
FOLD_ABOVE = 64
_NUMBERS = re.compile(r"\d+")
_MOST_NAME = 300


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One file, or ``files`` of them whose names differ in numbers only."""

    name: str
    files: int
    kind: str
    size: str
    events: int


def source_rows(sources: list[Source], events: Iterable[Event]) -> list[SourceRow]:
    """Return the rows in the order in which the files were found."""
    told = Counter(event.source for event in events)
    groups: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        name = _NUMBERS.sub("*", source.name) if len(sources) > FOLD_ABOVE else source.name
        groups.setdefault((name, source.kind), []).append(source)
    return [
        SourceRow(
            name=clean(name if len(members) > 1 else members[0].name, _MOST_NAME),
            files=len(members),
            kind=kind.replace("_", " "),
            size=size(sum(source.size for source in members)),
            events=sum(told[source.name] for source in members),
        )
        for (name, kind), members in groups.items()
    ]
