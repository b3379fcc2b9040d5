"""A log file as bytes that can be addressed by offset: lines around a place, and line numbers.

The file is memory-mapped, so a log larger than memory costs no memory; a line number is counted from the
nearest place whose number is known.
"""

from __future__ import annotations

import errno
import mmap
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from logforensics.carriers import Carrier

# A record is read from at most this much of a line: a 100 MB line must not become a 100 MB string.
MOST_LINE_BYTES = 16_384
_COUNT_STEP = 1 << 18  # small enough to stay in the cache: twice as fast as counting in megabytes


def shrunk() -> OSError:
    """Return the error for a file that was cut while it was read, as log rotation does."""
    return OSError(errno.ESTALE, "it became shorter while it was read")


class LogBuffer:
    """One file's bytes. Use as a context manager; ``data`` is a memory map (or empty bytes)."""

    def __init__(self, path: Path, known: tuple[list[int], list[int]] | None = None) -> None:
        """Open ``path``; ``known`` holds offsets and line numbers counted before, and gets what is counted now."""
        self.carrier: Carrier | None = None  # the prefix that the reader learned for this file
        self._file = path.open("rb")
        self._file.seek(0, 2)
        self.size = self._file.tell()
        self.data: mmap.mmap | bytes = b""
        if self.size:
            try:
                self.data = mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ)
            except ValueError:
                self._file.close()
                raise shrunk() from None
        self._known_offsets, self._known_numbers = known or ([0], [1])

    def __enter__(self) -> LogBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self.data, mmap.mmap):
            self.data.close()
        self._file.close()

    def _check(self) -> None:
        """Raise OSError when the file got shorter: to touch mapped bytes that are gone kills the process."""
        if isinstance(self.data, mmap.mmap) and self.data.size() < self.size:
            raise shrunk()

    def line_bounds(self, offset: int) -> tuple[int, int]:
        """Return start and end (without the newline) of the line that holds the byte at ``offset``."""
        self._check()
        start = self.data.rfind(b"\n", 0, offset) + 1
        end = self.data.find(b"\n", offset)
        return start, self.size if end < 0 else end

    def text(self, start: int, end: int, around: int | None = None) -> str:
        """Return the line ``start``..``end`` as text; of an overlong one its start, or the part around an offset."""
        if end - start > MOST_LINE_BYTES:
            if around is not None and around - start > MOST_LINE_BYTES:
                start = around - MOST_LINE_BYTES // 2
            end = min(end, start + MOST_LINE_BYTES)
        return self.data[start:end].decode("utf-8", "replace")

    def lines_after(self, end: int, most: int, most_bytes: int = 1 << 16) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of up to ``most`` lines that follow the line ending at ``end``."""
        self._check()
        limit = min(self.size, end + most_bytes)
        start = end + 1
        for _ in range(most):
            if start >= limit:
                return
            stop = self.data.find(b"\n", start)
            stop = self.size if stop < 0 else stop
            yield start, stop
            start = stop + 1

    def lines_before(self, start: int, most: int, most_bytes: int = 1 << 16) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of up to ``most`` lines before the line that starts at ``start``, nearest first."""
        self._check()
        limit = max(0, start - most_bytes)
        end = start - 1
        for _ in range(most):
            if end <= limit:
                return
            begin = self.data.rfind(b"\n", 0, end) + 1
            yield begin, end
            end = begin - 1

    def line_number(self, offset: int) -> int:
        """Return the 1-based number of the line that holds ``offset``."""
        self._check()
        place = bisect_right(self._known_offsets, offset) - 1
        position, number = self._known_offsets[place], self._known_numbers[place]
        while position < offset:
            step = min(offset, position + _COUNT_STEP)
            number += self.data[position:step].count(b"\n")
            position = step
        if self._known_offsets[place] != offset:
            self._known_offsets.insert(place + 1, offset)
            self._known_numbers.insert(place + 1, number)
        return number
