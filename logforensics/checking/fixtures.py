"""Finds fixtures, analyses them one after another and says how each came out."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from logforensics.analysis import analyze
from logforensics.checking.compare import Comparison, compare
from logforensics.checking.truth import Truth, TruthError, read_truth
from logforensics.sources import InputError

TRUTH, LOGS, PROVENANCE = "truth.toml", "logs", "provenance.toml"
# In the order in which a person wants to read them.
STATES = ("unusable", "wrong", "fixed", "known", "right")
# What must not be in a green build.
REGRESSIONS = ("unusable", "wrong", "fixed")


class FixtureError(ValueError):
    """Nothing to check at a path: one line that says what and what to do."""


@dataclass(frozen=True, slots=True)
class Fixture:
    """A folder with ``truth.toml`` and ``logs/``; ``name`` is unique among those checked together."""

    name: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Checked:
    """How one fixture came out. ``truth`` and ``comparison`` are None where ``problem`` says why.

    ``state``: "right"; "wrong"; "known": wrong, and marked as a known failure; "fixed": right, but still marked;
    "unusable": it could not be compared, because of the fixture or because the analysis broke.
    """

    fixture: Fixture
    strategy: str
    truth: Truth | None = None
    comparison: Comparison | None = None
    problem: str = ""
    seconds: float = 0.0

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        if self.truth is None or self.comparison is None:
            return "unusable"
        marked = self.truth.known_failure is not None
        if self.comparison.right:
            return "fixed" if marked else "right"
        return "known" if marked else "wrong"


def find_fixtures(paths: Iterable[Path]) -> list[Fixture]:
    """Find the fixtures at ``paths``: themselves fixtures, or folders that hold some at any depth; sorted by name.

    A folder below with ``provenance.toml`` but no truth counts too, so that a forgotten truth is not passed over.
    Raises FixtureError when a path is no folder or holds no fixture.
    """
    found: dict[Path, Path] = {}  # each once, under the spelling that was given
    for path in paths:
        if not path.is_dir():
            what = "is no folder; give fixtures, or folders that hold some" if path.exists() else "no such folder"
            raise FixtureError(f"{path}: {what}")
        here = list(_below(path))
        if not here and (path / LOGS).is_dir():
            raise FixtureError(f"{path / TRUTH}: no such file; write down there what the right answer is")
        if not here:
            raise FixtureError(f"{path}: no fixture here; a fixture is a folder with {TRUTH} and {LOGS}/")
        for folder in here:
            found.setdefault(folder.resolve(), folder)
    names = Counter(real.name for real in found)
    fixtures = [Fixture(real.name if names[real.name] == 1 else str(folder), folder) for real, folder in found.items()]
    return sorted(fixtures, key=lambda fixture: fixture.name)


def _below(path: Path) -> Iterable[Path]:
    for folder, children, files in os.walk(path):
        if TRUTH in files or (PROVENANCE in files and LOGS in children):
            children.clear()  # what a run wrote is no fixture, whatever it is called
            yield Path(folder)


def strategy_of(folder: Path) -> str:
    """Return the run's strategy by the provenance, else the first part of the folder's name."""
    try:
        named = tomllib.loads((folder / PROVENANCE).read_text(encoding="utf-8")).get("strategy")
    except (OSError, ValueError):
        named = None
    return named if isinstance(named, str) and named else folder.resolve().name.split("-")[0]


def check_fixture(fixture: Fixture, parsers: Path | None = None) -> Checked:
    """Analyse one fixture and compare it with its truth; ``parsers`` is a folder of one's own signatures."""
    strategy, started = strategy_of(fixture.folder), monotonic()
    truth = None
    try:
        truth = read_truth(fixture.folder / TRUTH)
        logs = fixture.folder / LOGS
        if not logs.is_dir():
            raise FixtureError(f"{logs}: no such folder; put there what the run wrote")
        comparison = compare(analyze(logs, parsers=parsers), truth)
    except (TruthError, FixtureError, InputError) as error:
        return Checked(fixture, strategy, truth, problem=str(error))
    except Exception as error:  # a fault of the program, found by this fixture: the others are still worth checking
        problem = f"{fixture.folder}: the analysis broke: {type(error).__name__}: {error}"
        return Checked(fixture, strategy, truth, problem=problem)
    return Checked(fixture, strategy, truth, comparison, seconds=monotonic() - started)


def check_fixtures(
    fixtures: list[Fixture],
    parsers: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Checked]:
    """Check one fixture after another; the worst come first in the result, then by name.

    ``progress`` is called with (fixtures done, in all).
    """
    results = []
    for number, fixture in enumerate(fixtures, 1):
        results.append(check_fixture(fixture, parsers))
        if progress:
            progress(number, len(fixtures))
    return sorted(results, key=lambda result: STATES.index(result.state))
