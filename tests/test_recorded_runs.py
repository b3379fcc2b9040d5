"""Runs and cases that were recorded before this program existed: real CPU runs, and cases shaped after public reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logforensics import Analysis, analyze
from logforensics.checking.compare import compare
from logforensics.checking.fixtures import check_fixture, find_fixtures
from logforensics.checking.report import rows_of
from logforensics.checking.truth import Truth

DATA = Path(__file__).parent / "data"
CASES = sorted(path.parent for path in (DATA / "cases").glob("*/truth.json"))
NOT_LOGS = {"truth.json"}


def told(case: Path) -> dict[str, Any]:
    """The truth of a case, as its report tells it."""
    return json.loads((case / "truth.json").read_text())


@pytest.mark.parametrize("fixture", find_fixtures([DATA / "runs"]), ids=lambda fixture: fixture.name)
def test_a_recorded_run_is_diagnosed_right(fixture):
    assert rows_of(check_fixture(fixture)) == []


@pytest.fixture(scope="module")
def diagnosed() -> dict[str, Analysis]:
    return {}


def diagnosis(case: Path, diagnosed: dict[str, Analysis]) -> Analysis:
    if case.name not in diagnosed:
        diagnosed[case.name] = analyze([path for path in sorted(case.iterdir()) if path.name not in NOT_LOGS])
    return diagnosed[case.name]


def truth_of(case: Path, analysis: Analysis) -> Truth:
    """The case's own truth; what its report does not settle (status, phase, at times the rank) is left open."""
    answer = told(case)
    category, rank = answer["root_cause_category"], answer["root_rank"]
    ranks = [rank] if isinstance(rank, int) else rank or []
    healthy = category == "no_failure"
    return Truth(
        statuses=("no_failure",) if healthy else (analysis.verdict.status,),
        categories=(category, *answer["also_acceptable"]),
        ranks=(frozenset(ranks if answer["root_rank_known"] else analysis.verdict.ranks),),
        phases=(analysis.verdict.phase,),
        evidence=(answer["first_error_line_contains"],) if answer["first_error_line_contains"] else (),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_public_case_is_diagnosed_right(case: Path, diagnosed: dict[str, Analysis]):
    analysis = diagnosis(case, diagnosed)

    comparison = compare(analysis, truth_of(case, analysis))

    assert [f"{d.key}: {d.said!r} instead of {d.expected!r}" for d in comparison.differences] == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if told(case)["root_rank"] is None], ids=lambda case: case.name
)
def test_no_rank_is_blamed_for_sure_where_the_report_could_not_name_one(case: Path, diagnosed: dict[str, Analysis]):
    verdict = diagnosis(case, diagnosed).verdict

    assert not verdict.ranks or verdict.confidence != "high"
