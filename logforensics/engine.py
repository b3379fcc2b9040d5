"""Finds, in one pass over the bytes, every line that some signature may want.

The texts that signatures need (``expression.required_texts``) are compiled into one Hyperscan database of
literals, kept on disk under its content's hash. Where Hyperscan cannot be imported the texts are searched for
one after another: slower, the same lines. Both report places as byte offsets inside the line that matched.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from logforensics.buffer import shrunk
from logforensics.patterns import read_checked, write_checked

# A block is scanned at once; it also bounds how many reports are held before they are folded.
BLOCK_BYTES = 32 << 20

Hit = tuple[int, int]  # (offset of the text's last byte, index of the text)


class Engine(Protocol):
    """Scans bytes for a fixed set of texts. One object may be used by one thread at a time."""

    def scan(self, block: Any) -> list[Hit]:
        """Return every (offset, text) in one block, ordered by offset."""
        ...

    def clone(self) -> Engine:
        """Return an engine over the same texts for another thread."""
        ...


class HyperscanEngine:
    """The fast engine: one pass, whatever the number of texts."""

    def __init__(self, database: Any, scratch: Any) -> None:
        self._database = database
        self._scratch = scratch

    @classmethod
    def build(cls, texts: Sequence[bytes], cache: Path | None) -> HyperscanEngine:
        """Compile, or load from ``cache`` (a folder). A bad or unwritable cache only costs the compilation."""
        import hyperscan

        name = hashlib.sha256(b"\0".join((str(getattr(hyperscan, "__version__", "")).encode(), *texts))).hexdigest()
        kept = cache / f"scan-{name[:32]}.hsdb" if cache else None
        database = _load(kept)
        if database is None:
            database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            database.compile(
                expressions=list(texts),
                ids=list(range(len(texts))),
                elements=len(texts),
                flags=[0] * len(texts),
                literal=True,
            )
            if kept:
                write_checked(kept, hyperscan.dumpb(database))
        return cls(database, hyperscan.Scratch(database))

    def clone(self) -> HyperscanEngine:
        """See Engine."""
        return HyperscanEngine(self._database, self._scratch.clone())

    def scan(self, block: Any) -> list[Hit]:
        """See Engine."""
        hits: list[Hit] = []
        add = hits.append

        def report(text: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            add((end - 1, text))

        if len(block):
            self._database.scan(block, match_event_handler=report, scratch=self._scratch)
        return hits


def _load(kept: Path | None) -> Any:
    import hyperscan

    if kept is None:
        return None
    try:
        body = read_checked(kept)  # a half-written or damaged file must not reach the C library
        return hyperscan.loadb(body, hyperscan.HS_MODE_BLOCK) if body is not None else None
    except (OSError, ValueError, hyperscan.error):
        return None


class PlainEngine:
    """The engine for machines without Hyperscan: each text is searched for in turn."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = list(texts)

    def clone(self) -> PlainEngine:
        """See Engine."""
        return self

    def scan(self, block: Any) -> list[Hit]:
        """See Engine."""
        data = bytes(block)
        hits: list[Hit] = []
        for number, text in enumerate(self._texts):
            place = data.find(text)
            while place >= 0:
                hits.append((place + len(text) - 1, number))
                place = data.find(text, place + 1)
        hits.sort()
        return hits


def build_engine(texts: Sequence[bytes], cache: Path | None, *, plain: bool = False) -> Engine:
    """Return the best engine that this machine has for the texts.

    ``LOGFORENSICS_ENGINE=plain`` in the environment, or ``plain``, chooses the slow one.
    """
    if not plain and os.environ.get("LOGFORENSICS_ENGINE") != "plain":
        with contextlib.suppress(ImportError):
            return HyperscanEngine.build(texts, cache)
    return PlainEngine(texts)


def blocks(data: Any, size: int, start: int = 0, step: int = BLOCK_BYTES) -> Iterator[tuple[int, Any]]:
    """Yield (offset, block) so that no line is cut, unless one line alone is longer than a block.

    The last block ends at ``size``.
    """
    view = memoryview(data)
    try:
        while start < size:
            end = min(size, start + step)
            if isinstance(data, mmap.mmap) and data.size() < end:
                raise shrunk()  # to touch bytes that are gone kills the process
            if end < size:
                cut = data.rfind(b"\n", start, end)
                end = cut + 1 if cut > start else end
            part = view[start:end]
            try:
                yield start, part
            finally:
                part.release()
            _forget(data, start, end)
            start = end
    finally:
        view.release()


def _forget(data: Any, start: int, end: int) -> None:
    """Give scanned pages of a memory map back, so that a log larger than memory costs none."""
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        first = start - start % mmap.PAGESIZE
        if end > first:
            data.madvise(mmap.MADV_DONTNEED, first, end - first)


def scan_buffer(
    engine: Engine, data: Any, size: int, start: int = 0, progress: Callable[[int], None] | None = None
) -> Iterator[list[Hit]]:
    """Yield the hits of each block of ``data[start:size]``, offsets counted from the beginning of ``data``."""
    for offset, block in blocks(data, size, start):
        found = engine.scan(block)
        if progress:
            progress(len(block))
        yield [(offset + place, text) for place, text in found] if offset else found
