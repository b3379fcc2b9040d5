"""Peels what carriers and loggers put in front of a line, and keeps what they said.

``3: [rank3]: RuntimeError: boom`` becomes ``RuntimeError: boom`` with ``task=3, rank=3``. The shapes are
data (``parsers/prefixes.toml``). A prefix has a layer: a *carrier* moved the line (srun, mpirun, tee, Ray),
a *rank* mark was put there by torch, a *logger* wrote time, level and place. The layer tells which lines
belong together: a continuation has the same carrier and no logger mark of its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import regex

from logforensics.carriers import Carrier
from logforensics.expression import first_characters
from logforensics.model import FIELDS
from logforensics.patterns import compiled
from logforensics.resources import data_text

LAYERS = ("carrier", "rank", "logger")
_MOST_PREFIXES = 12
_LOGGER_OPENING = "2026-11-30 19:11:05,469 "
# Numbers of processes and machines. A log that claims more of them is damaged, and a list of them would fill memory.
_MOST = dict.fromkeys(("rank", "group_rank", "task", "peer_rank", "world_size", "joined"), 100_000)
_MOST |= dict.fromkeys(("local_rank", "local_world_size", "node_rank", "nodes"), 10_000)
_MOST |= dict.fromkeys(("elapsed_ms", "timeout_ms"), 10**12)  # thirty years
# Larger is no count but a wrapped -1; it says nothing, and no column of the timeline holds it.
_LARGEST = (1 << 63) - 1
_CAPTURE = regex.compile(r"\(\?P<(\w+)>")

_ANSI = regex.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")
# A progress bar leaves the cursor in its line: what is printed next stands right behind it.
_AFTER_BAR = regex.compile(
    r"(?:\d{1,3}%\|[^|\r\n]{0,300}\|[^\[\]\r\n]{0,80}|\b\d+(?:\.\d+)?[kMG]?[A-Za-z]\w{1,11}\s)\[\d+:\d\d[^\]\r\n]{0,120}\]"
)
# Two processes on one pipe glue their lines together: a logger's opening in mid-line starts a new one.
_GLUED = regex.compile(
    r"(?<=[^\s:\]])(?:\[rank\d+\]:|\[[FEWIV](?:\d{3,4} \d\d:\d\d:\d\d\.\d{9})? [\w.+-]+\.(?:cpp|h|hpp|cc|cu):\d+\] "
    r"|Traceback \(most recent call last\):)"
)


@dataclass(frozen=True, slots=True)
class Prefix:
    """One shape: its name, its layer, the stream it implies, whether it needs a logger mark before it."""

    id: str
    layer: str
    pattern: str
    stream: str | None
    only_after_logger: bool
    last: bool
    samples: tuple[dict[str, Any], ...]
    captures: tuple[str, ...]


@dataclass(slots=True)
class Peeled:
    """A line without its prefixes. ``carrier`` is what the carriers said of the writer, as a hashable key.

    ``guesses`` holds what the text was before each prefix that only looked like one: "Epoch: [0]" may be a
    logger's name and a message, or all message.
    """

    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    stream: str | None = None
    carrier: tuple[tuple[str, Any], ...] = ()
    rank_mark: bool = False
    logger_mark: bool = False
    stamp: tuple[str, str] | None = None  # (prefix id, raw time)
    guesses: list[str] = field(default_factory=list)

    @property
    def readings(self) -> list[str]:
        """What the message can be, the most likely first."""
        return [self.text, *reversed(self.guesses)]


@lru_cache(maxsize=1)
def known_prefixes() -> tuple[Prefix, ...]:
    """Return the prefixes that ship with the program, in the order of the file."""
    table = tomllib.loads(data_text("parsers", "prefixes.toml"))
    return tuple(
        Prefix(
            id=item["id"],
            layer=item["layer"],
            pattern=item["pattern"],
            stream=item.get("stream"),
            only_after_logger=item.get("only_after_logger", False),
            last=item.get("last", False),
            samples=tuple(item["sample"]),
            captures=tuple(_CAPTURE.findall(item["pattern"])),
        )
        for item in table["prefix"]
    )


@lru_cache(maxsize=512)
def _alternation(after_logger: bool, first: str) -> tuple[Any, dict[str, Prefix]] | None:
    """Return the prefixes that can start with ``first`` as one pattern; None when there is none."""
    chosen = [
        prefix
        for prefix in known_prefixes()
        if (after_logger or not prefix.only_after_logger) and first in first_characters(prefix.pattern)
    ]
    if not chosen:
        return None
    groups = {f"_{number}": prefix for number, prefix in enumerate(chosen)}
    body = "|".join(f"(?P<{name}>{prefix.pattern}\n)" for name, prefix in groups.items())
    return compiled(body), groups


def clean(text: str) -> str:
    """Remove colour and cursor codes, NULs and a trailing carriage return."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    return text.rstrip("\r\n")


def segments(text: str) -> list[str]:
    """Split one physical line into the lines that were meant: at carriage returns, behind bars, where glued.

    Always returns at least one segment. Progress bars stay whole, so that they can still be read.
    """
    parts = [part for part in text.split("\r") if part] if "\r" in text else [text]
    split: list[str] = []
    for part in parts or [text]:
        cuts = set()
        if "[" in part and "]" in part:
            for match in _AFTER_BAR.finditer(part):
                rest = part[match.end() :]
                if rest.strip() and not rest.startswith(","):
                    cuts.add(match.end())
        if len(part) > 20:
            cuts.update(match.start() for match in _GLUED.finditer(part) if match.start() > 0)
        start = 0
        for cut in sorted(cuts):
            if part[start:cut].strip():
                split.append(part[start:cut])
            start = cut
        split.append(part[start:])
    return split


def peel(line: str, learned: Carrier | None = None) -> Peeled:
    """Take the prefixes off one (cleaned) line, outermost first; the first word on a field wins.

    ``learned`` is the file's own prefix, tried where no known one fits.

    The outermost ``rank`` mark wins over what stands deeper, except that torch's own ``[rankN]:`` (layer
    "rank") always wins: a carrier's number may count nodes or local ranks.
    """
    peeled = Peeled(line)
    carrier: list[tuple[str, Any]] = []
    text = line
    for _ in range(_MOST_PREFIXES):
        choice = _alternation(peeled.logger_mark, text[:1])
        match = choice[0].match(text) if choice is not None else None
        if choice is None or not match or match.end() == 0:
            taken = learned.take(text) if learned is not None else None
            if taken is None:
                break
            learned = None  # it stands there once
            length, said = taken
            peeled.fields = {**said, **peeled.fields}
            carrier += said.items()
            text = text[length:]
            continue
        groups = choice[1]
        prefix = groups[_outer_group(match, groups)]
        for name in prefix.captures:
            raw = match.group(name)
            if raw is None:
                continue
            if name == "time":
                if peeled.stamp is None:  # a carrier stamps every line, a logger only its own
                    peeled.stamp = (prefix.id, raw)
                continue
            value = typed(name, raw)
            if value is None:
                continue
            if name not in peeled.fields or prefix.layer == "rank":
                peeled.fields[name] = value
            if prefix.layer == "carrier":
                carrier.append((name, value))
        if prefix.stream:
            peeled.stream = prefix.stream
        peeled.rank_mark = peeled.rank_mark or prefix.layer == "rank"
        peeled.logger_mark = peeled.logger_mark or prefix.layer == "logger"
        if prefix.only_after_logger:
            peeled.guesses.append(text)
        text = text[match.end() :]
        if prefix.last:
            break
    peeled.text = text
    peeled.carrier = tuple(carrier)
    return peeled


def behind_prefixes(record: str) -> Iterator[str]:
    """Yield a record (one line, or several joined by newlines) behind each known prefix that can precede it.

    A carrier moves every line. A logger writes before a record's first line, so not before a continuation, which
    begins with a blank. Behind a prefix that is the last stands no other.
    """
    first = clean(record.split("\n")[0])
    bare = peel(first).text == first
    for prefix in known_prefixes():
        if (prefix.layer == "logger" and record[0] in " \t") or (prefix.last and not bare):
            continue
        opening = _LOGGER_OPENING if prefix.only_after_logger else ""
        for sample in prefix.samples:
            between = "\n" + sample["line"] if prefix.layer == "carrier" else "\n"
            yield opening + sample["line"] + record.replace("\n", between)


def _outer_group(match: Any, groups: dict[str, Prefix]) -> str:
    last: str = match.lastgroup
    if last in groups:
        return last
    return next(name for name in groups if match.group(name) is not None)


def typed(name: str, raw: str) -> Any:
    """Return a captured text in the type that the field vocabulary gives it, None when it is no such value."""
    kind = FIELDS.get(name, str)
    if kind is str:
        return raw
    try:
        value = kind(raw)
    except (ValueError, OverflowError):
        return None
    if kind is int and abs(value) > _MOST.get(name, _LARGEST):
        return None
    return value
