"""Reads ``truth.toml``: what a perfect reader of a fixture's logs would answer.

A mistake in it is named, never passed over: a truth that nobody reads as it was meant proves nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from logforensics.model import CATEGORIES, PHASES, STATUSES

_REQUIRED = ("status", "category", "ranks", "phase")
_OPTIONAL = (
    "evidence",
    "also_acceptable",
    "also_acceptable_ranks",
    "also_acceptable_phases",
    "also_acceptable_status",
    "note",
    "known_failure",
)


class TruthError(ValueError):
    """A truth that cannot be used: one line that says which file and key, what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The right answer, and those that are as right. The first of each tuple is the answer proper.

    ``ranks`` holds sets of global ranks; the empty set names nobody. ``evidence`` holds literals of which one must
    be in what the verdict points at; empty: any line will do, or none. ``known_failure`` is the reason why the
    program is known to get this fixture wrong; None where it should be right.
    """

    statuses: tuple[str, ...]
    categories: tuple[str, ...]
    ranks: tuple[frozenset[int], ...]
    phases: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    known_failure: str | None = None

    @property
    def category(self) -> str:
        """The category that was injected."""
        return self.categories[0]

    @property
    def failed(self) -> bool:
        """Whether the run failed at all; where it did not, there is no rank, phase or line to name."""
        return self.statuses[0] != "no_failure"


def read_truth(path: Path) -> Truth:
    """Read a ``truth.toml``. Raises TruthError when it cannot be read, or says what no analysis could answer."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TruthError(f"{path}: no such file; write down there what the right answer is") from None
    except OSError as error:
        raise TruthError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise TruthError(f"{path}: is no UTF-8 text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise TruthError(f"{path}: is no TOML: {error}") from None
    return _Reader(path, table).truth()


class _Reader:
    """The keys of one file, each checked as it is taken."""

    def __init__(self, path: Path, table: dict[str, Any]) -> None:
        self.path = path
        self.table = table

    def truth(self) -> Truth:
        known = (*_REQUIRED, *_OPTIONAL)
        for key in self.table:
            if key not in known:
                near = get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                raise self.wrong(key, f"is no key of a truth; {hint}")
        failed = self.table.get("status") != "no_failure"
        for key in _REQUIRED if failed else _REQUIRED[:2]:
            if key not in self.table:
                raise self.wrong(key, "is missing; say what the right answer is")
        return Truth(
            statuses=self.words("status", "also_acceptable_status", STATUSES),
            categories=self.words("category", "also_acceptable", CATEGORIES),
            ranks=self.ranks(),
            phases=self.words("phase", "also_acceptable_phases", PHASES),
            evidence=self.evidence(),
            known_failure=self.reason(),
        )

    def words(self, key: str, others: str, allowed: Sequence[str]) -> tuple[str, ...]:
        also = self.table.get(others, [])
        if not isinstance(also, list):
            raise self.wrong(others, f'should be a list of words, e.g. ["{allowed[0]}"], not {also!r}')
        answers = [(key, self.table.get(key, "unknown"))] if key in self.table else []
        answers += [(others, word) for word in also]
        for place, word in answers:
            if word not in allowed:
                near = get_close_matches(str(word), allowed, 1)
                hint = f"did you mean {near[0]}?" if near else f"it should be one of {', '.join(allowed)}"
                raise self.wrong(place, f"{word!r} is unknown; {hint}")
        return tuple(word for _, word in answers)

    def ranks(self) -> tuple[frozenset[int], ...]:
        also = self.table.get("also_acceptable_ranks", [])
        if not isinstance(also, list):
            raise self.wrong("also_acceptable_ranks", f"should be a list of lists, e.g. [[0], []], not {also!r}")
        answers = [("ranks", self.table.get("ranks", []))] + [("also_acceptable_ranks", ranks) for ranks in also]
        for key, ranks in answers:
            if not isinstance(ranks, list) or not all(type(rank) is int and rank >= 0 for rank in ranks):
                shape = "[3]" if key == "ranks" else "[[3], []]"
                raise self.wrong(key, f"{ranks!r} is no list of global ranks; write {key} = {shape}, or [] for nobody")
        return tuple(frozenset(ranks) for _, ranks in answers)

    def evidence(self) -> tuple[str, ...]:
        value = self.table.get("evidence", "")
        literals = value if isinstance(value, list) else [value]
        if not all(isinstance(literal, str) for literal in literals):
            raise self.wrong("evidence", f"{value!r} should be a literal of the line to point at, or a list of such")
        # one empty literal among others would accept everything: that is what it says
        return () if "" in literals else tuple(literals)

    def reason(self) -> str | None:
        value = self.table.get("known_failure")
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        raise self.wrong(
            "known_failure", f"{value!r} should be the reason in words; leave the key out if there is none"
        )

    def wrong(self, key: str, what: str) -> TruthError:
        return TruthError(f"{self.path}: {key}: {what}")
