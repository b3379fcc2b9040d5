"""Makes log text safe and readable: control characters spelled out, long lines cut, times and ranks in words.

Log text is hostile. What reaches a terminal or a page goes through ``clean`` first, so that no escape
sequence, no bidirectional override and no lone surrogate arrives there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from logforensics.language import name_ranks

# Colour and cursor sequences say nothing in a report: dropped. Any other control character is spelled out.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
# Letters and marks that take no room and so could hide text; the selectors of emoji are left alone.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]")
_FOLDERS = re.compile(r"\[/(?:[^\s/\]]+/)+(?=[^\s/\]]+:\d+\])")
# No line is shown longer than this; the middle goes, because the ends identify it.
MOST_CHARACTERS = 2000
_US = 1_000_000


def clean(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return one harmless line: escapes dropped, control and invisible characters spelled, the middle cut."""
    raw = cut(str(text), most)
    if "\x1b" in raw:
        raw = _ESCAPES.sub("", raw)
    raw = raw.rstrip("\r\n").expandtabs(4)
    harmless = raw.isprintable() and (raw.isascii() or not _INVISIBLE.search(raw))
    return raw if harmless else "".join(map(_spelled, raw))


def _spelled(character: str) -> str:
    if character.isprintable() and not _INVISIBLE.match(character):
        return character
    if character.isspace() and ord(character) > 0x7F and character not in "\u0085\u2028\u2029":
        return " "
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that was no UTF-8 (surrogateescape)
        number -= 0xDC00
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def cut(text: str, most: int, mark: str = "…") -> str:
    """Return ``text`` with its middle replaced by ``mark`` when it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    keep = max(most - len(mark), 0)
    head = (keep * 3 + 4) // 5
    tail = keep - head
    return text[:head] + mark[:most] + (text[len(text) - tail :] if tail else "")


def without_folders(message: str) -> str:
    """Return a message with C++ source places by file name: of "[/build/a/pair.cc:553]" the end says all."""
    return _FOLDERS.sub("[", message)


def iso_time(us: int | None) -> str | None:
    """Return ISO 8601 in UTC with Z; None for an unknown time or one outside the calendar."""
    moment = _moment(us)
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def clock_time(us: int | None) -> str:
    """Return hours to milliseconds, "" when unknown."""
    moment = _moment(us)
    return "" if moment is None else f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def day(us: int | None) -> str:
    """Return the calendar day, "" when unknown."""
    moment = _moment(us)
    return "" if moment is None else f"{moment:%Y-%m-%d}"


def _moment(us: int | None) -> datetime | None:
    if us is None:
        return None
    try:
        return datetime.fromtimestamp(us // _US, UTC).replace(microsecond=us % _US)
    except (ValueError, OverflowError, OSError):
        return None


def duration(seconds: float) -> str:
    """Return a length of time as people say it: "0.3 s", "4 min 05 s", "2 h 03 min"."""
    seconds = abs(seconds)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: int) -> str:
    """Return a number of bytes with the unit that suits it."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def who(ranks: Iterable[int]) -> str:
    """Return "rank 3", "ranks 0-2, 5", or "" for none."""
    known = sorted(set(ranks))
    return name_ranks(known) if known else ""


def counted(count: int, noun: str) -> str:
    """Return "1 file" or "3 files"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
