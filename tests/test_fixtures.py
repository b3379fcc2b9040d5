"""Every fixture of this repository: the diagnosis is right, or its known failure is marked with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from logforensics.checking.fixtures import Fixture, check_fixture, find_fixtures
from logforensics.checking.report import rows_of

ROOT = Path(__file__).parents[1] / "fixtures"
FIXTURES = find_fixtures([ROOT])


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_the_diagnosis_is_right(fixture: Fixture):
    result = check_fixture(fixture)

    if result.state == "fixed":
        pytest.fail("this known failure came out right: take the mark known_failure out of its truth.toml")
    if result.state != "known":
        assert rows_of(result) == []


def test_every_folder_is_a_fixture():
    assert [fixture.name for fixture in FIXTURES] == sorted(path.name for path in ROOT.iterdir() if path.is_dir())
