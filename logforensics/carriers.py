"""Learns what an unknown log system puts in front of the lines of one file.

Every platform has its own: a trial's id, a rank in brackets, a pod's name. Where lines that should mean something
begin with a text that most lines of the file share but for its numbers, that text is a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import regex

# So many of the sampled lines must share it, and there must be so many lines.
_SHARE = 0.6
_FEWEST_LINES = 8
_LONGEST = 120
# Where a prefix may end: behind a mark that no sentence has in its midst.
_ENDS = regex.compile(r"\|{1,2}\s|>:?\s?|\]:?\s|:\s|\s-\s")
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|stdout|stderr|STDOUT|STDERR"
# What differs from line to line inside one prefix.
_VARIES = regex.compile(
    rf"(?P<level>\b(?:{_LEVELS})\b)|(?P<hex>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{{6,64}}\b)|(?P<number>\d+)|(?P<blank>\s+)"
)
_SHAPES = {"level": f"(?:{_LEVELS})", "hex": "[0-9a-f]+", "number": r"\d+", "blank": r"\s+"}
_RANK = regex.compile(r"(?<![a-z])(?:global_?|mpi_?)?rank\W{0,2}(?P<rank>\d{1,6})", regex.IGNORECASE)
_LOCAL = regex.compile(r"local_?rank\W{0,2}(?P<rank>\d{1,3})", regex.IGNORECASE)
_HOST = regex.compile(r"\b(?P<host>(?:algo|node|host|worker|pod|ip|gpu)[\w.-]*\d)\b", regex.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Carrier:
    """A learned prefix. ``shape`` is the expression that it was generalised to."""

    shape: str
    pattern: Any

    def take(self, text: str) -> tuple[int, dict[str, Any]] | None:
        """Return how long the prefix is at the start of ``text``, and who it says wrote the line; None without one."""
        match = self.pattern.match(text)
        if match is None:
            return None
        said: dict[str, Any] = {}
        if local := _LOCAL.search(match[0]):
            said["local_rank"] = int(local["rank"])
        elif rank := _RANK.search(match[0]):
            said["rank"] = int(rank["rank"])
        if host := _HOST.search(match[0]):
            said["host"] = host["host"]
        return match.end(), said


def learn_carrier(lines: Iterable[str]) -> Carrier | None:
    """Return the longest text that most of ``lines`` (without their known prefixes) begin with; None without one."""
    counted: Counter[str] = Counter()
    total = 0
    for line in lines:
        if not line.strip():
            continue
        total += 1
        shapes = {_generalised(line[: end.end()]) for end in _ENDS.finditer(line[:_LONGEST])}
        counted.update(shapes)
    if total < _FEWEST_LINES:
        return None
    common = [shape for shape, count in counted.items() if count >= total * _SHARE and shape]
    if not common:
        return None
    shape = max(common, key=lambda text: (len(text), text))
    return Carrier(shape, regex.compile(shape))


def _generalised(text: str) -> str:
    """Return an expression that fits ``text`` with other numbers in it."""
    out, place = [], 0
    for match in _VARIES.finditer(text):
        out.append(regex.escape(text[place : match.start()]))
        out.append(_SHAPES[match.lastgroup or "blank"])
        place = match.end()
    out.append(regex.escape(text[place:]))
    return "".join(out)
