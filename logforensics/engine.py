"""Finds, in one pass over the bytes, every line that some signature may want.

All scan expressions are compiled into one Hyperscan database, kept on disk under its content's hash. Where
Hyperscan cannot be imported the same expressions run one after another through ``regex``: slower, the same
lines. Both report places as byte offsets inside the line that matched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import regex

from logforensics.signatures import write_atomically

# A block is scanned at once; it also bounds how many reports are held before they are folded.
BLOCK_BYTES = 32 << 20

Hit = tuple[int, int]  # (offset of the match's last byte, index of the expression)


class Engine(Protocol):
    """Scans bytes for a fixed set of expressions. One object may be used by one thread at a time."""

    def scan(self, block: Any) -> list[Hit]:
        """Return every (offset, expression) in one block, ordered by offset."""
        ...

    def clone(self) -> Engine:
        """Return an engine over the same expressions for another thread."""
        ...


class HyperscanEngine:
    """The fast engine. Compiling costs a second or two; loading a cached database a few milliseconds."""

    def __init__(self, database: Any, scratch: Any) -> None:
        self._database = database
        self._scratch = scratch

    @classmethod
    def build(cls, expressions: Sequence[bytes], cache: Path | None) -> HyperscanEngine:
        """Compile, or load from ``cache`` (a folder). A bad or unwritable cache only costs the compilation."""
        from importlib.metadata import version

        import hyperscan

        name = hashlib.sha256(b"\n".join((version("hyperscan").encode(), *expressions))).hexdigest()
        kept = cache / f"scan-{name[:32]}.hsdb" if cache else None
        database = _load(kept)
        if database is None:
            database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            database.compile(
                expressions=list(expressions),
                ids=list(range(len(expressions))),
                elements=len(expressions),
                flags=[0] * len(expressions),
            )
            if kept:
                body = hyperscan.dumpb(database)
                write_atomically(kept, hashlib.sha256(body).digest() + body)
        return cls(database, hyperscan.Scratch(database))

    def clone(self) -> HyperscanEngine:
        """See Engine."""
        return HyperscanEngine(self._database, self._scratch.clone())

    def scan(self, block: Any) -> list[Hit]:
        """See Engine."""
        hits: list[Hit] = []
        add = hits.append

        def report(expression: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            add((end - 1, expression))

        if len(block):
            self._database.scan(block, match_event_handler=report, scratch=self._scratch)
        return hits


def _load(kept: Path | None) -> Any:
    import hyperscan

    if kept is None:
        return None
    try:
        content = kept.read_bytes()
        digest, body = content[:32], content[32:]
        # a half-written or damaged file must not reach the C library
        if hashlib.sha256(body).digest() != digest:
            return None
        return hyperscan.loadb(body, hyperscan.HS_MODE_BLOCK)
    except (OSError, ValueError, hyperscan.error):
        return None


class RegexEngine:
    """The engine for machines without Hyperscan: each expression is searched for in turn."""

    def __init__(self, expressions: Sequence[bytes]) -> None:
        self._patterns = [regex.compile(expression, regex.ASCII) for expression in expressions]

    def clone(self) -> RegexEngine:
        """See Engine."""
        return self

    def scan(self, block: Any) -> list[Hit]:
        """See Engine."""
        data = bytes(block)
        hits: list[Hit] = []
        for number, pattern in enumerate(self._patterns):
            position = 0
            while match := pattern.search(data, position):
                hits.append((match.end() - 1, number))
                line_end = data.find(b"\n", match.end() - 1)
                if line_end < 0:
                    break
                position = line_end + 1
        hits.sort()
        return hits


def build_engine(expressions: Sequence[bytes], cache: Path | None, *, prefer_regex: bool = False) -> Engine:
    """Return the best engine that this machine has for the expressions.

    ``LOGFORENSICS_ENGINE=regex`` in the environment, or ``prefer_regex``, chooses the slow one.
    """
    if not prefer_regex and os.environ.get("LOGFORENSICS_ENGINE") != "regex":
        with contextlib.suppress(ImportError):
            return HyperscanEngine.build(expressions, cache)
    return RegexEngine(expressions)


def blocks(data: Any, size: int, start: int = 0, step: int = BLOCK_BYTES) -> Iterator[tuple[int, Any]]:
    """Yield (offset, block) so that no line is cut, unless one line alone is longer than a block.

    The last block ends at ``size``.
    """
    view = memoryview(data)
    try:
        while start < size:
            end = min(size, start + step)
            if end < size:
                cut = data.rfind(b"\n", start, end)
                end = cut + 1 if cut > start else end
            part = view[start:end]
            try:
                yield start, part
            finally:
                part.release()
            start = end
    finally:
        view.release()


def scan_buffer(
    engine: Engine, data: Any, size: int, start: int = 0, progress: Callable[[int], None] | None = None
) -> Iterator[list[Hit]]:
    """Yield the hits of each block of ``data[start:size]``, offsets counted from the beginning of ``data``."""
    for offset, block in blocks(data, size, start):
        found = engine.scan(block)
        if progress:
            progress(len(block))
        yield [(offset + place, expression) for place, expression in found] if offset else found
