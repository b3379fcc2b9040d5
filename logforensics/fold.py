"""Folds floods: thousands of like lines of one writer become the first ones, the last one and a count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from logforensics.buffer import LogBuffer
from logforensics.engine import Hit

# So many like lines of one writer are read one by one; of those behind only the last is.
KEPT = 40
LOOKED_AT = 240

# Who wrote a line, cheaply: the words that carry a number of a rank, a task or a process.
_WRITER = re.compile(
    rb"^[\w.-]+:\d+:\d+ |^\s{0,5}\d+:|^\[\d+,\d+\]|(?<![a-z])(?:rank|default|task|process|pid|node)[\W_]{0,10}\d+",
    re.IGNORECASE,
)


_NUMBER = re.compile(rb"\d+")
# So many different shapes are told apart for one set of texts; a log that has more is not a flood of like lines.
_MOST_SHAPES = 4000
# More writers than any run has: what looked like a writer's number was something else.
_MOST_WRITERS = 100_000


@dataclass(slots=True)
class HitLine:
    """A line that held texts that some signature needs. ``repeats`` counts the like lines that it stands for."""

    start: int
    end: int
    texts: frozenset[int]
    place: int = 0  # offset of a match's end: where to look in an overlong line
    repeats: int = 1


@dataclass(slots=True)
class _Flood:
    kept: list[HitLine] = field(default_factory=list)
    last: HitLine | None = None
    folded: int = 0


def line_shape(head: bytes) -> bytes:
    """Return a line's beginning with every number made 0: lines of one shape say the same of other things."""
    return _NUMBER.sub(b"0", head)


def writer_key(head: bytes) -> bytes:
    """Return what tells one writer's lines from another's, from the first bytes of a line."""
    return b"|".join(_WRITER.findall(head)[:3]).lower()


def group_by_line(buffer: LogBuffer, hits: list[Hit]) -> Iterator[HitLine]:
    """Yield one HitLine for each line that was hit, from hits ordered by offset."""
    start = end = place = -1
    texts: set[int] = set()
    for offset, text in hits:
        if offset <= end:
            texts.add(text)
            continue
        if end >= 0:
            yield HitLine(start, end, frozenset(texts), place)
        start, end = buffer.line_bounds(offset)
        place = offset
        texts = {text}
    if end >= 0:
        yield HitLine(start, end, frozenset(texts), place)


class Fold:
    """Collects the hits of one file, block by block, and gives the lines worth reading."""

    def __init__(self, buffer: LogBuffer) -> None:
        self._buffer = buffer
        self._floods: dict[tuple[frozenset[int], bytes, bytes], _Flood] = {}

    def add(self, hits: list[Hit]) -> None:
        """Take the hits of one block, ordered by offset."""
        for line in group_by_line(self._buffer, hits):
            head = self._buffer.data[line.start : min(line.end, line.start + LOOKED_AT)]
            shape = line_shape(head) if len(self._floods) < _MOST_SHAPES else b""
            writer = writer_key(head) if len(self._floods) < _MOST_WRITERS else b""
            flood = self._floods.setdefault((line.texts, writer, shape), _Flood())
            if len(flood.kept) < KEPT:
                flood.kept.append(line)
            else:
                flood.last = line
                flood.folded += 1

    def lines(self) -> list[HitLine]:
        """Return the kept lines in file order; the last of a flood carries the count of what it stands for."""
        lines: list[HitLine] = []
        for flood in self._floods.values():
            lines += flood.kept
            if flood.last is not None:
                flood.last.repeats = flood.folded
                lines.append(flood.last)
        lines.sort(key=lambda line: line.start)
        return lines
