"""Compares one analysis with one truth: what was expected, what was said instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logforensics.checking.truth import Truth
from logforensics.language import list_ranks
from logforensics.render.text import cut

if TYPE_CHECKING:
    from logforensics.analysis import Analysis
    from logforensics.model import Evidence

# The verdict points at its first piece of evidence; what stands behind it has not been pointed at.
EVIDENCE_READ = 1
_QUOTED = 160  # characters of each that a difference quotes


@dataclass(frozen=True, slots=True)
class Difference:
    """One key of the truth that the verdict answers otherwise; both answers in words."""

    key: str
    expected: str
    said: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Where a verdict differs from the truth: nowhere when it is right."""

    differences: tuple[Difference, ...]
    confidence: str

    @property
    def right(self) -> bool:
        """Whether every key that matters is answered acceptably."""
        return not self.differences


def compare(analysis: Analysis, truth: Truth) -> Comparison:
    """Compare a diagnosis with the truth, key by key.

    Of a run that did not fail only status and category count: there is no rank, phase or line to name. Ranks are
    compared as sets. The evidence is right when one of its literals is in the lines of one of the first
    ``EVIDENCE_READ`` places that the verdict points at.
    """
    verdict = analysis.verdict
    found = [
        _word("status", truth.statuses, verdict.status),
        _word("category", truth.categories, verdict.category),
    ]
    if truth.failed:
        found += [
            _ranks(truth, verdict.ranks),
            _word("phase", truth.phases, verdict.phase),
            _evidence(analysis, truth.evidence),
        ]
    return Comparison(tuple(difference for difference in found if difference), verdict.confidence)


def _word(key: str, acceptable: tuple[str, ...], said: str) -> Difference | None:
    return None if said in acceptable else Difference(key, _either(acceptable), said)


def _ranks(truth: Truth, said: list[int]) -> Difference | None:
    if frozenset(said) in truth.ranks:
        return None
    return Difference("ranks", _either(_named(ranks) for ranks in truth.ranks), _named(said))


def _named(ranks: Iterable[int]) -> str:
    return list_ranks(sorted(ranks)) or "none"


def _evidence(analysis: Analysis, literals: tuple[str, ...]) -> Difference | None:
    read = analysis.verdict.evidence[:EVIDENCE_READ]
    if not literals or any(literal in _lines(analysis, item) for item in read for literal in literals):
        return None
    said = " | ".join(f"{item.source}:{item.line}: {cut(' '.join(item.text.split()), _QUOTED)}" for item in read)
    return Difference("evidence", _either(f'"{literal}"' for literal in literals), said or "no evidence")


def _lines(analysis: Analysis, evidence: Evidence) -> str:
    """Return the log's own lines of the event; ``text`` may be one line of them, or a message out of a file."""
    excerpt = analysis.excerpts.get(evidence.event_id, [])
    return "\n".join([evidence.text, *(text for line, text in excerpt if evidence.line <= line <= evidence.end_line)])


def _either(answers: Iterable[str]) -> str:
    return " or ".join(answers)
