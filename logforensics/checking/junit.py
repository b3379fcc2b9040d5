"""The result of a check as JUnit XML: one test case a fixture, for the CI that shows such reports."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from logforensics.checking.fixtures import Checked
from logforensics.checking.report import reason_of, rows_of
from logforensics.render.junit import document


def to_junit(results: Sequence[Checked]) -> str:
    """Return a JUnit report: wrong and no longer wrong fixtures are failures, known failures are skipped."""
    states = [result.state for result in results]
    suite = ElementTree.Element(
        "testsuite",
        name="logforensics check",
        tests=str(len(states)),
        failures=str(states.count("wrong") + states.count("fixed")),
        errors=str(states.count("unusable")),
        skipped=str(states.count("known")),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        _case(suite, result)
    return document(suite)


def _case(suite: ElementTree.Element, result: Checked) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"fixtures.{result.strategy}",
        name=result.fixture.name,
        time=f"{result.seconds:.3f}",
    )
    rows = rows_of(result)
    keys = ", ".join(key for key, _, _ in rows)
    # the answers are cleaned of what XML cannot hold
    told = "\n".join(f"{key}: expected {expected}\n{' ' * len(key)}  said     {said}" for key, expected, said in rows)
    if result.state == "wrong":
        ElementTree.SubElement(case, "failure", type="wrong", message=f"wrong: {keys}").text = told
    elif result.state == "fixed":
        ElementTree.SubElement(case, "failure", type="fixed", message=reason_of(result))
    elif result.state == "known":
        ElementTree.SubElement(case, "skipped", message=f"known failure: {reason_of(result)}").text = told
    elif result.state == "unusable":
        ElementTree.SubElement(case, "error", type="unusable", message=rows[0][2])
