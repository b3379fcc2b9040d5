"""Finds the time of lines that carry none: the nearest stamps above and below them."""

from __future__ import annotations

from typing import Any

from logforensics.buffer import LogBuffer
from logforensics.clock import Stamp, parse_stamp
from logforensics.prefixes import Peeled, clean, peel, segments

_MOST_LINES = 300
_LOOKED_AT = 200
# What prefixes say of the writer, as opposed to the line. Many processes share a host.
_WRITER = ("rank", "task", "local_rank", "pid")


class StampFinder:
    """The stamps of one file, each line parsed once."""

    def __init__(self, buffer: LogBuffer) -> None:
        self._buffer = buffer
        self._found: dict[int, tuple[Stamp, dict[str, Any]] | None] = {}

    def near(self, place: int, writer: Peeled, *, back: bool) -> tuple[Stamp | None, bool]:
        """Return the nearest stamp above or below a line, and whether another writer's line has it.

        Where prefixes tell writers apart a stamp of the line's own writer wins over a nearer one.
        """
        own = _writer_of(writer)
        nearest: Stamp | None = None
        lines = self._buffer.lines_before(place, _MOST_LINES) if back else self._buffer.lines_after(place, _MOST_LINES)
        for start, end in lines:
            if start not in self._found:
                self._found[start] = self._stamp_of(start, end)
            found = self._found[start]
            if found is None:
                continue
            stamp, other = found
            if not _differ(own, other):
                return stamp, False
            nearest = nearest or stamp
        return nearest, nearest is not None

    def _stamp_of(self, start: int, end: int) -> tuple[Stamp, dict[str, Any]] | None:
        head = self._buffer.data[start : min(end, start + _LOOKED_AT)]
        if head.count(b":") < 2:
            return None
        for part in segments(clean(head.decode("utf-8", "replace"))):
            peeled = peel(part, self._buffer.carrier)
            if peeled.stamp is not None and (stamp := parse_stamp(peeled.stamp[1])) is not None:
                return stamp, _writer_of(peeled)
        return None


def _writer_of(peeled: Peeled) -> dict[str, Any]:
    return {name: peeled.fields[name] for name in _WRITER if name in peeled.fields}


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two lines certainly have different writers."""
    return any(one[name] != other[name] for name in one.keys() & other.keys())
