"""Puts lines together that belong together: a writer's neighbouring lines, and whole tracebacks.

Streams of several processes may be interleaved in one file, even line by line; what the prefixes say of the
writer keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import regex

from logforensics.buffer import LogBuffer
from logforensics.prefixes import Peeled, clean, peel, segments

TRACEBACK_HEADER = "Traceback (most recent call last):"
_MOST_TRACEBACK_LINES = 600
# Unprefixed lines of other processes that may stand inside a traceback before it is given up.
_MOST_STRANGERS = 12

_FRAME = regex.compile(r'\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_EXCEPTION = regex.compile(r"(?P<exc>[A-Za-z_][\w.]*(?:\.<locals>\.\w+)?)(?::\s?(?P<message>.*)|\s*)$", regex.DOTALL)
_NOT_A_CLASS = regex.compile(
    r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL|wandb|srun|slurmstepd|step|epoch|loss|iter)$", regex.IGNORECASE
)
_CHAIN = {
    "During handling of the above exception, another exception occurred:": "context",
    "The above exception was the direct cause of the following exception:": "cause",
}
# Lib/logging/__init__.py (handleError) and Python/errors.c (PyErr_WriteUnraisable): the program goes on.
_IGNORED = ("Exception ignored ", "--- Logging error ---")
_LIBRARY = regex.compile(r"(?:site-packages|dist-packages|/lib/python\d|<frozen |<string>|/runpy\.py|/opt/pytorch/)")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack: where, and in which function."""

    path: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The frame as Python prints it."""
        return f'File "{self.path}", line {self.line}, in {self.function}'


@dataclass(slots=True)
class Traceback:
    """One traceback: its frames, and the line of the exception that ended it.

    ``chained`` says how the *next* block of a chain followed: the exception of this block is the "context" or
    the direct "cause" of it. ``nested`` is set for the original traceback that a DataLoader worker sends home,
    ``ignored`` for one that Python itself announces as passed over (in a finaliser, or while writing a log).
    """

    header: int
    exception_start: int
    exception_end: int
    frames: list[Frame] = field(default_factory=list)
    chained: str | None = None
    nested: bool = False
    ignored: bool = False
    end: int = 0

    @property
    def where(self) -> str | None:
        """The innermost frame outside libraries: the user's own line."""
        return place_in_code(self.frames)


def place_in_code(frames: list[Frame]) -> str | None:
    """Return the innermost frame outside libraries, as "train.py:113 in train_epoch"; None when there is none."""
    for frame in reversed(frames):
        if not _LIBRARY.search(frame.path):
            return f"{frame.path}:{frame.line} in {frame.function}"
    return None


def looks_like_exception(text: str) -> bool:
    """Return whether a line can be the last one of a traceback: a class, maybe with a message."""
    match = _EXCEPTION.match(text)
    return bool(match) and not _NOT_A_CLASS.match(match["exc"])


def same_writer(first: Peeled, other: Peeled) -> bool:
    """Return whether two lines can come from one process: same carrier, same mark of torch's."""
    return (
        first.carrier == other.carrier
        and first.rank_mark == other.rank_mark
        and (not first.rank_mark or first.fields.get("rank") == other.fields.get("rank"))
    )


def following(buffer: LogBuffer, end: int, first: Peeled, most: int) -> Iterator[tuple[int, int, Peeled]]:
    """Yield up to ``most`` later lines of the writer of ``first``, as (start, end, peeled).

    Stops at a line that the same writer's logger began. A rank's mark stands on a C++ message's first line
    only, so lines without any mark go on with it.
    """
    given = 0
    for start, stop in buffer.lines_after(end, most * 8):
        peeled = peel(clean(buffer.text(start, stop)), buffer.carrier)
        if peeled.carrier != first.carrier:
            continue
        if peeled.rank_mark and peeled.fields.get("rank") != first.fields.get("rank"):
            continue
        if peeled.logger_mark:
            return
        yield start, stop, peeled
        given += 1
        if given == most:
            return


def preceding(buffer: LogBuffer, start: int, first: Peeled, most: int) -> Iterator[Peeled]:
    """Yield up to ``most`` earlier lines of the writer of ``first``, nearest first."""
    given = 0
    for begin, stop in buffer.lines_before(start, most * 8):
        peeled = peel(clean(buffer.text(begin, stop)), buffer.carrier)
        if not same_writer(first, peeled):
            continue
        yield peeled
        given += 1
        if given == most:
            return


def assemble_tracebacks(buffer: LogBuffer, headers: list[int]) -> list[Traceback]:
    """Return the tracebacks that start on the lines at ``headers`` (offsets inside those lines), in order.

    Two tracebacks printed line by line into each other cannot be told apart; each still gets its own
    exception line, in the order in which those came.
    """
    found: list[Traceback] = []
    used: set[int] = set()
    for header in headers:
        start, end = buffer.line_bounds(header)
        if start in used:
            continue
        used.add(start)
        found += _assemble(buffer, start, end, used)
    return found


def _assemble(buffer: LogBuffer, start: int, end: int, used: set[int]) -> list[Traceback]:
    raw = clean(buffer.text(start, end))
    # what stands in front on the same line (a progress bar, another process) is not this writer's prefix
    own = next((part for part in reversed(segments(raw)) if TRACEBACK_HEADER in part), raw)
    cut = own.rfind("Original " + TRACEBACK_HEADER)
    nested = cut >= 0
    cut = cut if nested else own.rfind(TRACEBACK_HEADER)
    first = peel(own, buffer.carrier)
    if TRACEBACK_HEADER not in first.text or not first.text.replace("Original ", "").strip().startswith("Traceback"):
        first = peel(own[cut:])
    ignored = any(line.text.startswith(_IGNORED) for line in preceding(buffer, start, first, 1))
    open_headers = [start]
    done: list[Traceback] = []
    frames: list[Frame] = []
    strangers = 0
    for begin, stop in buffer.lines_after(end, _MOST_TRACEBACK_LINES, 1 << 18):
        line = peel(clean(buffer.text(begin, stop)), buffer.carrier)
        text = line.text
        if not text.strip():
            if open_headers or line.logger_mark:
                continue
            if not _chain_follows(buffer, stop, first):
                break
            continue
        if not same_writer(first, line):
            continue
        if line.logger_mark and not text.startswith(TRACEBACK_HEADER):
            strangers += 1
            if strangers > _MOST_STRANGERS or not open_headers:
                break
            continue
        if text in _CHAIN:
            if done:
                done[-1].chained = _CHAIN[text]
            continue
        if text.startswith(TRACEBACK_HEADER):
            if not open_headers and not (done and done[-1].chained):
                break  # the next one, not part of this chain
            if begin not in used:
                used.add(begin)
                open_headers.append(begin)
            continue
        if text.startswith("Original " + TRACEBACK_HEADER):
            break  # a block of its own, found by its own header
        if text[0] in " \t":
            if done and not open_headers:
                done[-1].end = stop  # a message of several lines, indented
                strangers += 1
                if strangers > _MOST_STRANGERS:
                    break
            elif frame := _FRAME.match(text):
                frames.append(Frame(frame["path"], int(frame["line"]), (frame["function"] or "").strip()))
            continue
        if open_headers and frames and looks_like_exception(text):
            block = Traceback(open_headers.pop(0), begin, stop, list(frames), nested=nested, ignored=ignored, end=stop)
            done.append(block)
            if not open_headers:
                frames = []
            continue
        if done and not open_headers:
            done[-1].end = stop  # a message of several lines
            strangers += 1
            if strangers > _MOST_STRANGERS:
                break
            continue
        strangers += 1
        if strangers > _MOST_STRANGERS:
            break
    return done


def _chain_follows(buffer: LogBuffer, stop: int, first: Peeled) -> bool:
    """Return whether the next line with text, after blank ones, is a chain sentence of the same writer."""
    for begin, end in buffer.lines_after(stop - 1, 4):
        line = peel(clean(buffer.text(begin, end)), buffer.carrier)
        if line.text.strip():
            return line.text in _CHAIN and same_writer(first, line)
    return False
