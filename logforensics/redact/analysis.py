"""Redacts a whole analysis: every text in it, so that every report made from it is redacted.

The walk knows which fields hold words of our own vocabulary or hosts and treats every other string as log text: a
field that is added later is redacted until somebody says that it need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logforensics.places import FoundEvent
from logforensics.redact.redactor import Redactor

if TYPE_CHECKING:
    from logforensics.analysis import Analysis
    from logforensics.sources import Source

# Our own words: a host called "timeout" must not change what a verdict is.
_OWN_WORDS = {
    "status", "category", "phase", "confidence", "rule", "kind", "signature", "role", "stream", "time_basis",
    "fate", "last_activity", "id", "told", "activity",
}  # fmt: skip
_HOSTS = {"node", "nodes", "host", "rank_node", "place_node"}
_VERSIONS = {"facts", "version"}
_ADVICE = {"title", "steps", "commands"}
# Environment dumps stand at the head of a log; what is named there is mentioned anywhere.
_HEAD_BYTES = 32 << 10
_MOST_HEADS = 64
_LONGEST_LINE = 4000


def redacted(analysis: Analysis) -> Analysis:
    """Return a copy of ``analysis`` without secrets, addresses, and names of people and hosts.

    The heads of the log files are read for names, where the files are still there. Aliases stay as they are, so
    redacting twice changes nothing.
    """
    redactor = Redactor()
    _walk(analysis, partial(_learned, redactor))
    for head in _heads(analysis.sources):
        for line in dict.fromkeys(head.splitlines()):
            redactor.learn(line[:_LONGEST_LINE])
    copy: Analysis = _walk(analysis, partial(_changed, redactor))
    return copy


def _learned(redactor: Redactor, key: str, text: str) -> str:
    if key in _HOSTS:
        redactor.learn_host(text)
    elif key in _VERSIONS:
        redactor.learn_version(text)
    if key not in _ADVICE:
        redactor.learn(text)
    return text


def _changed(redactor: Redactor, key: str, text: str) -> str:
    if key in _HOSTS:
        return redactor.host(text)
    return redactor.advice(text) if key in _ADVICE else redactor.text(text)


def _heads(sources: Iterable[Source]) -> Iterable[str]:
    logs = [source for source in sources if source.kind == "log"]
    for source in logs[:_MOST_HEADS]:
        try:
            with source.path.open("rb") as file:
                yield file.read(_HEAD_BYTES).decode("utf-8", "surrogateescape")
        except OSError:
            continue


def _walk(analysis: Analysis, change: Callable[[str, str], str]) -> Any:
    """Return a copy of the analysis in which ``change(field, text)`` has replaced every text."""
    copies: dict[int, Any] = {}

    def walk(value: Any, key: str) -> Any:
        if isinstance(value, str):
            return value if key in _OWN_WORDS else change(key, value)
        if isinstance(value, Path):
            return Path(change(key, str(value)))
        if isinstance(value, dict):
            return {walk(name, key): walk(item, _key_of(name, key)) for name, item in value.items()}
        if isinstance(value, list | tuple | set):
            return type(value)(walk(item, key) for item in value)
        if not is_dataclass(value):
            return value
        if id(value) not in copies:  # a first exception is an event of the timeline, too
            copies[id(value)] = _rebuilt(value, walk)
        return copies[id(value)]

    return walk(analysis, "")


def _key_of(name: object, key: str) -> str:
    return name if isinstance(name, str) and key not in _HOSTS | _VERSIONS else key


def _rebuilt(value: Any, walk: Callable[[Any, str], Any]) -> Any:
    # made without its constructor: an event of a file counts its lines when it is asked for them, not when copied
    copy = object.__new__(type(value))
    lazy = ("_line", "_end_line", "end_offset", "index") if isinstance(value, FoundEvent) else ()
    skipped = {"line", "end_line"} if lazy else set()
    for name in lazy:
        setattr(copy, name, getattr(value, name))
    for field in fields(value):
        if field.name not in skipped:
            setattr(copy, field.name, walk(getattr(value, field.name), field.name))
    return copy
