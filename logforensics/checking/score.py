"""Counts how good the diagnosis is: in all, by strategy, by category, by confidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from logforensics.checking.fixtures import Checked
from logforensics.model import CONFIDENCES


@dataclass(frozen=True, slots=True)
class Row:
    """The score of the fixtures that have ``name`` in common. Unusable ones are in none but their own count."""

    name: str
    right: int
    known: int
    wrong: int

    @property
    def total(self) -> int:
        """How many could be compared."""
        return self.right + self.known + self.wrong

    @property
    def percent(self) -> int:
        """How many of a hundred are right, rounded down: 100 is said of nothing less. Known failures are failures."""
        return self.right * 100 // self.total if self.total else 0


@dataclass(frozen=True, slots=True)
class Score:
    """All counts of one check.

    ``sure`` is how many verdicts had confidence high, ``surely_wrong`` how many of those were wrong: marked ones
    included, since a user is misled by these all the same.
    """

    total: Row
    by_strategy: tuple[Row, ...]
    by_category: tuple[Row, ...]
    by_confidence: tuple[Row, ...]
    fixed: int
    unusable: int
    sure: int
    surely_wrong: int


def score(results: Iterable[Checked]) -> Score:
    """Count the results. A fixture that is right although marked as a known failure counts as right."""
    results = list(results)
    compared = [result for result in results if result.comparison]
    sure = [result for result in compared if result.comparison and result.comparison.confidence == "high"]
    return Score(
        total=_row("all", compared),
        by_strategy=_rows(compared, lambda result: result.strategy),
        by_category=_rows(compared, lambda result: result.truth.category if result.truth else ""),
        by_confidence=_by_confidence(compared),
        fixed=sum(result.state == "fixed" for result in results),
        unusable=len(results) - len(compared),
        sure=len(sure),
        surely_wrong=sum(result.state in ("wrong", "known") for result in sure),
    )


def _by_confidence(results: list[Checked]) -> tuple[Row, ...]:
    """What a confidence is worth: how often each was right, the surest first."""
    rows = {row.name: row for row in _rows(results, lambda r: r.comparison.confidence if r.comparison else "")}
    return tuple(rows[name] for name in CONFIDENCES if name in rows)


def _rows(results: list[Checked], key: Callable[[Checked], str]) -> tuple[Row, ...]:
    groups: dict[str, list[Checked]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result)
    return tuple(_row(name, groups[name]) for name in sorted(groups))


def _row(name: str, results: list[Checked]) -> Row:
    states = [result.state for result in results]
    return Row(name, states.count("right") + states.count("fixed"), states.count("known"), states.count("wrong"))
