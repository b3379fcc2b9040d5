"""What CI shows of a diagnosis: a JUnit test case, and annotations of GitHub Actions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from render_samples import HOSTILE, hostile, huge, ordinary
from typer.testing import CliRunner

from logforensics.checking.annotations import annotations_of
from logforensics.checking.compare import Comparison, Difference
from logforensics.checking.fixtures import Checked, Fixture
from logforensics.cli import app
from logforensics.layout import Hints
from logforensics.render.github import annotation, annotation_of, in_workspace
from logforensics.render.junit import to_junit
from logforensics.sources import Source

FIXTURE = Path(__file__).parents[1] / "fixtures" / "ddp-nan"
FAILED = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: 50% of ::it\n'


@pytest.fixture(autouse=True)
def outside(monkeypatch, tmp_path):
    """Whatever runs the tests: no job of GitHub Actions, and a checkout that holds none of the samples."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "checkout"))


def no_failure():
    analysis = ordinary()
    analysis.verdict = replace(
        analysis.verdict, status="no_failure", category="no_failure", headline="No failure found"
    )
    return analysis


def test_a_diagnosis_is_a_failed_test_case():
    suite = ElementTree.fromstring(to_junit(ordinary(), "nightly"))[0]
    case = suite[0]
    failure = case[0]

    assert suite.attrib == {
        "name": "logforensics analyze",
        "tests": "1",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
    }
    assert case.attrib == {"classname": "logforensics.user_exception", "name": "nightly"}
    assert failure.tag == "failure"
    assert failure.attrib == {"type": "user_exception", "message": "Rank 1 failed first: it raised an exception"}
    for piece in (
        "Diagnosed: user_exception, in the middle of training. Confidence: high.",
        "logs/rank1.log:10-11 (rank 1 on node0) 20:26:40.000",
        "> 10 | ValueError: boom",
        "launcher.log:3\n  ValueError: boom",
        "1. Read ValueError: boom",
        "Missing: no log of rank 7: ValueError: boom",
    ):
        assert piece in failure.text, piece


def test_no_failure_is_a_passed_test_case():
    suite = ElementTree.fromstring(to_junit(no_failure()))[0]

    assert suite.get("failures") == "0"
    assert [len(case) for case in suite] == [0]


def test_what_is_not_established_fails_too():
    analysis = ordinary()
    analysis.verdict.status = "undetermined"

    failure = ElementTree.fromstring(to_junit(analysis))[0][0][0]

    assert failure.text.startswith("Not established: ")


@pytest.mark.parametrize("make", [hostile, huge])
def test_any_log_text_gives_a_sound_document(make):
    text = to_junit(make())

    ElementTree.fromstring(text.encode())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", text)


def test_an_annotation_is_escaped_by_githubs_rules():
    line = annotation("error", "50% of it\r\nwas ::lost", file="a:b,c%.log", line=3, title="x\ny", endLine=None)

    assert line == "::error file=a%3Ab%2Cc%25.log,line=3,title=x%0Ay::50%25 of it%0D%0Awas ::lost"


def test_a_diagnosis_points_at_its_first_evidence():
    line = annotation_of(ordinary())

    assert line == (
        "::error file=logs/rank1.log,line=10,endLine=11,title=user_exception%2C confidence high"
        "::Rank 1 failed first: it raised an exception%0AValueError: boom"
    )


def test_what_is_not_established_is_a_warning():
    analysis = ordinary()
    analysis.verdict.status, analysis.verdict.evidence = "undetermined", []

    assert annotation_of(analysis).startswith("::warning title=user_exception%2C confidence high::Rank 1")


def test_no_failure_has_no_annotation():
    assert annotation_of(no_failure()) is None


def test_hostile_text_stays_inside_one_command():
    line = annotation_of(hostile())

    assert "\n" not in line and "\r" not in line and "\x1b" not in line
    assert line.startswith("::error file=")
    assert HOSTILE.startswith("<script>") and "<script>" in line


def test_a_file_of_the_checkout_is_named_as_it_lies_there(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    analysis = ordinary()
    analysis.sources = [Source("logs/rank1.log", tmp_path / "out" / "logs" / "rank1.log", 1, 0, "log", Hints())]

    assert " file=out/logs/rank1.log," in annotation_of(analysis)
    assert " file=logs/rank1.log," in annotation_of(analysis, real_paths=False)
    assert in_workspace(tmp_path.parent / "x") is None


def checked(state: str, **more) -> Checked:
    values = {"fixture": Fixture("ddp-nan", Path("fixtures/ddp-nan")), "strategy": "ddp", **more}
    if state == "unusable":
        return Checked(**values, problem="truth.toml: no such file")
    truth = replace_truth(known=state in {"fixed", "known"})
    differences = () if state in {"right", "fixed"} else (Difference("category", "nan_loss", "cuda_oom"),)
    return Checked(**values, truth=truth, comparison=Comparison(differences, "high"))


def replace_truth(known: bool):
    from logforensics.checking.truth import read_truth

    return replace(read_truth(FIXTURE / "truth.toml"), known_failure="not yet" if known else None)


def test_a_regression_is_an_annotation_at_its_truth(monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(Path.cwd()))

    lines = list(annotations_of([checked(state) for state in ("right", "known", "wrong", "fixed", "unusable")]))

    assert [line.split("::")[1] for line in lines] == [
        f"error file=fixtures/ddp-nan/truth.toml,line=1,title=ddp-nan%3A {state}"
        for state in ("wrong", "fixed", "unusable")
    ]
    assert lines[0].endswith("::category: expected nan_loss, said cuda_oom")
    assert "known_failure" in lines[1]
    assert lines[2].endswith("::truth.toml: no such file")


# ------------------------------------------------------------------------------------------ the command line


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "rank0.log"
    path.write_text(f"::error::not ours\n{FAILED}")
    return path


def call(*arguments: object):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_writes_junit(log, tmp_path):
    result = call("analyze", log, "--junit", tmp_path / "out.xml")

    case = ElementTree.parse(tmp_path / "out.xml").getroot()[0][0]
    assert case.get("name") == str(log)
    assert case[0].get("type") == "user_exception"
    assert "::error file" not in result.output and "stop-commands" not in result.output


def test_in_github_actions_there_is_an_annotation_and_no_other_command(log, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(log.parent))

    lines = call("analyze", log).stdout.split("\n")

    assert lines[0].startswith("::error file=rank0.log,line=4,endLine=4,title=user_exception%2C confidence ")
    assert lines[0].endswith("%0AValueError: 50%25 of ::it")
    stop, token = lines[1].rsplit("::", 1)
    assert stop == "::stop-commands" and len(token) == 32
    assert f"::{token}::" in lines


def test_a_report_on_standard_output_stays_alone(log, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    result = call("analyze", log, "--junit", "-")

    ElementTree.fromstring(result.stdout)
    assert result.stderr.startswith("::error file=")


def test_a_redacted_annotation_names_no_path_of_this_machine(log, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(log.parent.parent))

    assert " file=rank0.log," in call("analyze", log, "--redact").stdout


def test_check_annotates_regressions(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    assert "::error" not in call("check", FIXTURE).output
