"""Where in a log progress is read, and which lines of it: the head, the tail, and the neighbourhood of failures.

A healthy log is progress from end to end; to read all of it would cost more than the search for failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from logforensics.buffer import LogBuffer
from logforensics.engine import Engine, scan_buffer
from logforensics.fold import LOOKED_AT, HitLine, group_by_line, writer_key

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Reach:
    """How many bytes of a log are read for progress: at its head, at its tail, on either side of a failure.

    Where these hold no progress line, more is read, up to ``most``.
    """

    head: int
    tail: int
    near: int
    most: int


# One rank's own file says all it has to say in a few lines; in a file of many ranks each must get a word in.
ONE_RANK = Reach(4 << 10, 4 << 10, 4 << 10, 64 << 10)
MANY_RANKS = Reach(128 << 10, 512 << 10, 64 << 10, 512 << 10)
_MOST_WINDOWS = 8
_ENOUGH_STEPS = 3
_KEPT_FIRST, _KEPT_LAST = 1, 2


def first_and_last(items: Sequence[Item]) -> list[Item]:
    """Return what is kept of like lines between one failure and the next."""
    return [*items[:_KEPT_FIRST], *items[max(_KEPT_FIRST, len(items) - _KEPT_LAST) :]]


class Windows:
    """The parts of one file in which progress is read. ``failures`` are offsets, in order.

    ``engine`` finds the texts of progress lines; ``counts_steps`` says of each text whether such a line counts.
    """

    def __init__(
        self, buffer: LogBuffer, engine: Engine | None, counts_steps: list[bool], reach: Reach, failures: list[int]
    ) -> None:
        self.buffer = buffer
        self.engine = engine
        self.counts_steps = counts_steps
        self.reach = reach
        self.failures = failures

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Return the parts as (start, end), whole lines, in order and apart."""
        size, near = self.buffer.size, self.reach.near
        spans = [(0, min(size, self.reach.head)), (self._back(size, self.reach.tail), size)]
        chosen = (
            self.failures
            if len(self.failures) <= _MOST_WINDOWS
            else self.failures[: _MOST_WINDOWS // 2] + self.failures[-_MOST_WINDOWS // 2 :]
        )
        spans += [(self._back(place, near), min(size, place + near)) for place in chosen]
        spans.sort()
        merged: list[tuple[int, int]] = []
        for start, end in spans:
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return [
            (
                self.buffer.line_bounds(start)[0] if start else 0,
                self.buffer.line_bounds(end)[1] if end < size else size,
            )
            for start, end in merged
        ]

    def _back(self, end: int, reach: int) -> int:
        """Return where to start reading before ``end``: far enough back to meet a progress line or two."""
        start = max(0, end - reach)
        while self.engine is not None and start > 0 and reach < self.reach.most:
            hits = self.engine.scan(self.buffer.data[start:end])
            steps = sum(1 for _, text in hits if self.counts_steps[text])
            if steps >= _ENOUGH_STEPS:
                break
            reach *= 4
            start = max(0, end - reach)
        return start

    def between_failures(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches of one part that lie between one failure and the next."""
        borders = [start, *sorted(place for place in self.failures if start < place < end), end]
        yield from pairwise(borders)

    def lines(self, one_rank: bool) -> list[HitLine]:
        """Return the first and the last progress lines of each writer between one failure and the next."""
        lines: list[HitLine] = []
        if self.engine is None:
            return lines
        for start, end in self.spans:
            scanned = scan_buffer(self.engine, self.buffer.data, end, start)
            grouped = list(group_by_line(self.buffer, [hit for block in scanned for hit in block]))
            place = 0
            for low, high in self.between_failures(start, end):
                part: list[HitLine] = []
                while place < len(grouped) and grouped[place].start < high:
                    if grouped[place].start >= low:
                        part.append(grouped[place])
                    place += 1
                lines += self._ends(part, one_rank)
        return lines

    def _ends(self, lines: list[HitLine], one_rank: bool) -> list[HitLine]:
        kept: dict[tuple[frozenset[int], bytes], list[HitLine]] = {}
        for line in lines:
            head = b"" if one_rank else self.buffer.data[line.start : min(line.end, line.start + LOOKED_AT)]
            kept.setdefault((line.texts, writer_key(head)), []).append(line)
        return [line for group in kept.values() for line in first_and_last(group)]
