"""A confidence is a promise: how often a verdict that says "high" or "medium" is right, on every run with known truth."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from test_recorded_runs import CASES, DATA, diagnosis, truth_of

from logforensics.checking.compare import compare
from logforensics.checking.fixtures import check_fixture, find_fixtures

# In a hundred.
PROMISED = {"high": 98, "medium": 80}


@cache
def outcomes() -> dict[str, list[bool]]:
    """For each confidence whether each verdict that had it was right; known failures are failures."""
    found: dict[str, list[bool]] = defaultdict(list)
    for fixture in find_fixtures([DATA.parents[1] / "fixtures", DATA / "runs"]):
        comparison = check_fixture(fixture).comparison
        assert comparison is not None
        found[comparison.confidence].append(comparison.right)
    for case in CASES:
        analysis = diagnosis(case, {})
        comparison = compare(analysis, truth_of(case, analysis))
        found[comparison.confidence].append(comparison.right)
    return found


@pytest.mark.parametrize("confidence", PROMISED)
def test_a_confidence_is_right_as_often_as_it_promises(confidence: str):
    verdicts = outcomes()[confidence]

    assert len(verdicts) > 50
    assert sum(verdicts) * 100 >= PROMISED[confidence] * len(verdicts)


def test_the_readme_shows_what_a_confidence_is_worth():
    readme = (Path(__file__).parents[1] / "README.md").read_text()

    for confidence, verdicts in outcomes().items():
        share = sum(verdicts) * 100 // len(verdicts)
        assert f"| {confidence} | {sum(verdicts)} | {len(verdicts)} | {share} % |" in readme
