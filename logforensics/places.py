"""Line numbers, counted when somebody asks: for a log of gigabytes that costs as much as the scan itself."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from logforensics.buffer import LogBuffer
from logforensics.model import Event

_UNKNOWN = -1


class LineIndex:
    """Turns byte offsets of one file into line numbers; keeps what it has counted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = [0]
        self._numbers = [1]

    def number(self, offset: int) -> int:
        """Return the 1-based line that holds ``offset``; the last one counted before it when the file is gone."""
        try:
            with LogBuffer(self._path, (self._offsets, self._numbers)) as buffer:
                return buffer.line_number(offset)
        except OSError:
            return self._numbers[bisect_right(self._offsets, offset) - 1]


class FoundEvent(Event):
    """An event of a log file whose line numbers are counted on first use."""

    __slots__ = ("_end_line", "_line", "end_offset", "index")

    index: LineIndex
    _line: int
    _end_line: int
    end_offset: int | None

    @property
    def line(self) -> int:
        """1-based line of the event."""
        if self._line == _UNKNOWN:
            self._line = self.index.number(self.offset)
        return self._line

    @line.setter
    def line(self, number: int) -> None:
        self._line = number

    @property
    def end_line(self) -> int:
        """1-based last line of the event."""
        if self._end_line == _UNKNOWN:
            self._end_line = self.index.number(self.end_offset) if self.end_offset else self.line
        return self._end_line

    @end_line.setter
    def end_line(self, number: int) -> None:
        self._end_line = number


def settle(event: Event) -> None:
    """Count an event's line numbers now, before its file goes away."""
    _ = event.line, event.end_line
