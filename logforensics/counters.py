"""Learns a file's own progress lines, where no signature knows them: the like lines whose number grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import regex

from logforensics.prefixes import Peeled

_FEWEST = 4  # like lines; with fewer a number grows by chance
_MOST_LINES = 4000
_LOOKED_AT = 240
_NUMBER = regex.compile(
    r"(?<![\w.]|\d:)(?:\d{1,3}(?:,\d{3})+|\d+)(?![\w.]|:\d|,\d{3})"  # whole, and no part of a time of day
)
_ANY_NUMBER = regex.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
# What counts something else than work done, or is no news of the writer's health.
_NO_PROGRESS = regex.compile(
    r"retr(?:y|ies)|attempt|error|fail|warn|timeout|timed out|waiting|watchdog|heartbeat|NCCL|port\b|pid\b|version|"
    r"Traceback|^\s*File |exitcode",
    regex.IGNORECASE,
)
_TRAINING = regex.compile(r"step|iter|epoch|loss|batch|update|\blr\b|it/s|tok|samples|grad", regex.IGNORECASE)
_EVALUATION = regex.compile(r"eval|valid|\btest|decod|generat|infer|beam", regex.IGNORECASE)


@dataclass(slots=True)
class Counted:
    """A line of a learned progress: where it is, who wrote it, what it counted, and what was being done."""

    start: int
    end: int
    peeled: Peeled
    writer: tuple[object, ...]
    step: int
    activity: str


@dataclass(slots=True)
class _Like:
    """Lines of one writer and one shape, in file order."""

    lines: list[tuple[int, int, Peeled]] = field(default_factory=list)
    numbers: list[list[int]] = field(default_factory=list)

    def column(self) -> int | None:
        """The first number that never falls and grows on the whole."""
        if len(self.lines) < _FEWEST:
            return None
        for column in range(min(len(row) for row in self.numbers)):
            values = [row[column] for row in self.numbers]
            if len(set(values)) >= _FEWEST - 1 and all(a <= b for a, b in pairwise(values)):
                return column
        return None


def learn_steps(lines: Iterable[tuple[int, int, Peeled]]) -> list[Counted]:
    """Return the lines of each writer's most frequent shape in which a number grows, in file order.

    ``lines`` are (start, end, line without prefixes), in file order.
    """
    groups: dict[tuple[object, ...], dict[str, _Like]] = defaultdict(lambda: defaultdict(_Like))
    for number, (start, end, peeled) in enumerate(lines):
        text = peeled.text[:_LOOKED_AT]
        if number >= _MOST_LINES:
            break
        if peeled.stream in {"nccl", "kernel", "scheduler"} or not any(char.isdigit() for char in text):
            continue
        if _NO_PROGRESS.search(text):
            continue
        writer = tuple(peeled.fields.get(key) for key in ("rank", "local_rank", "task", "host"))
        like = groups[writer][_ANY_NUMBER.sub("0", text)]
        like.lines.append((start, end, peeled))
        like.numbers.append([int(found.replace(",", "")) for found in _NUMBER.findall(text)])
    counted: list[Counted] = []
    for writer, shapes in groups.items():
        growing = [(like, column) for like in shapes.values() if (column := like.column()) is not None]
        if growing:
            like, column = max(growing, key=lambda item: len(item[0].lines))
            counted += [
                Counted(start, end, peeled, writer, row[column], _activity(peeled.text))
                for (start, end, peeled), row in zip(like.lines, like.numbers, strict=True)
            ]
    return sorted(counted, key=lambda line: line.start)


def _activity(text: str) -> str:
    if _EVALUATION.search(text):
        return "evaluation"
    return "training" if _TRAINING.search(text) else "working"
