"""``logforensics check``: fixtures with known truth in, regressions and scores out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from render_samples import HOSTILE, analysis_of, event, ordinary
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner, Result

from logforensics.checking import fixtures as checking
from logforensics.checking.compare import compare
from logforensics.checking.documents import json_text
from logforensics.checking.fixtures import Checked, Fixture, FixtureError, find_fixtures
from logforensics.checking.junit import to_junit
from logforensics.checking.report import print_check
from logforensics.checking.truth import Truth, TruthError, read_truth
from logforensics.cli import app
from logforensics.model import Evidence

# Rank 1 of two fails in the middle of training; the truth below was written first.
LOG = """\
[rank0]: step 10 loss=2.1
[rank1]: step 10 loss=2.2
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/user/train.py", line 40, in <module>
[rank1]:     main()
[rank1]:   File "/home/user/train.py", line 31, in main
[rank1]:     labels = batch["labels"]
[rank1]: KeyError: 'labels'
"""
RIGHT = """\
status = "diagnosed"
category = "user_exception"
ranks = [1]
phase = "mid_training"
evidence = "KeyError: 'labels'"
"""
WRONG = RIGHT.replace("user_exception", "dataloader").replace("[1]", "[0]")
MARK = 'known_failure = "two ranks in one file"\n'
TRUTH = Truth(("diagnosed",), ("user_exception",), (frozenset({1}),), ("mid_training",), ("boom",))


def make(root: Path, name: str, truth: str | None = RIGHT, log: str | None = LOG, strategy: str = "") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    if truth is not None:
        (folder / "truth.toml").write_text(truth)
    if log is not None:
        (folder / "logs").mkdir()
        (folder / "logs" / "train.log").write_text(log)
    if strategy:
        (folder / "provenance.toml").write_text(f'strategy = "{strategy}"\n')
    return folder


def check(*words: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, words)])


def unwrapped(text: str) -> str:
    """Without any space, so that it does not matter where a line was broken."""
    return "".join(text.split())


# --- the command ----------------------------------------------------------------------------------------------


def test_a_right_fixture_is_counted_and_listed_only_on_request(tmp_path: Path):
    make(tmp_path, "ddp-key_error")

    result = check(tmp_path)
    listed = check(tmp_path, "--all")

    assert (result.exit_code, listed.exit_code) == (0, 0), result.output
    assert "1 fixture: 1 right, 0 wrong, 0 known failures." in result.output
    assert "ddp-key_error" not in result.output
    assert "ddp-key_error" in listed.output


def test_a_wrong_fixture_is_a_regression_and_only_what_differs_is_shown(tmp_path: Path):
    make(tmp_path, "ddp-good")
    make(tmp_path, "ddp-bad", WRONG)

    result = check(tmp_path)

    assert result.exit_code == 1
    assert "wrong ddp-bad" in result.output
    assert "category: expected dataloader, said user_exception" in result.output
    assert "ranks:    expected 0, said 1" in result.output
    assert "phase:" not in result.output and "evidence:" not in result.output
    assert "2 fixtures: 1 right, 1 wrong, 0 known failures." in result.output


def test_a_known_failure_is_listed_after_the_wrong_ones_and_is_no_regression(tmp_path: Path):
    make(tmp_path, "a-known", WRONG + MARK)

    alone = check(tmp_path)
    make(tmp_path, "b-wrong", WRONG)
    both = check(tmp_path)

    assert alone.exit_code == 0
    assert "known a-known" in alone.output and "two ranks in one file" in alone.output
    assert both.exit_code == 1
    assert both.output.index("b-wrong") < both.output.index("a-known")


def test_a_known_failure_that_comes_out_right_must_lose_its_mark(tmp_path: Path):
    make(tmp_path, "ddp-fixed", RIGHT + MARK)

    result = check(tmp_path)

    assert result.exit_code == 1
    assert "fixed ddp-fixed" in result.output
    assert "take the mark known_failure out of truth.toml" in result.output


def test_one_unusable_fixture_among_many_is_a_row_and_a_regression(tmp_path: Path):
    make(tmp_path, "ddp-good")
    make(tmp_path, "ddp-nologs", log=None)
    make(tmp_path, "ddp-forgotten", truth=None, strategy="ddp")

    result = check(tmp_path)

    assert result.exit_code == 1
    said = unwrapped(result.output)
    assert unwrapped("ddp-nologs/logs: no such folder") in said
    assert unwrapped("ddp-forgotten/truth.toml: no such file") in said
    assert unwrapped("3 fixtures: 1 right, 0 wrong, 0 known failures, 2 unusable.") in said


@pytest.mark.parametrize(
    ("truth", "log", "said"),
    [
        (RIGHT.replace("[1]", "[1"), LOG, "truth.toml: is no TOML"),
        (RIGHT, None, "logs: no such folder; put there what the run wrote"),
        (RIGHT, "", "logs"),
        (None, LOG, "truth.toml: no such file; write down there what the right answer is"),
        (None, None, "no fixture here; a fixture is a folder with truth.toml and logs/"),
    ],
)
def test_nothing_that_can_be_checked_is_one_line_and_exit_2(
    tmp_path: Path, truth: str | None, log: str | None, said: str
):
    folder = make(tmp_path, "ddp-x", truth, log)
    if log == "":
        (folder / "logs" / "train.log").unlink()

    result = check(folder)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and str(folder) in result.stderr and said in result.stderr


def test_arguments_that_cannot_be_used_are_one_line_and_exit_2(tmp_path: Path):
    make(tmp_path, "ddp-x")
    (tmp_path / "README.md").write_text("x")

    for words, said in (
        ([tmp_path / "absent"], "no such folder"),
        ([tmp_path / "README.md"], "is no folder; give fixtures"),
        ([tmp_path, "--json", "-", "--junit", "-"], "only one of"),
        ([tmp_path, "--json", tmp_path / "no" / "x.json"], "cannot be written"),
        ([tmp_path, "--parsers", tmp_path / "absent"], "no such folder"),
    ):
        result = check(*words)

        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert said in result.stderr


def test_an_analysis_that_breaks_is_named_and_the_others_are_still_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make(tmp_path, "ddp-good")
    make(tmp_path, "ddp-known", WRONG + MARK)
    real = checking.analyze

    def breaking(logs: Path, **options: object) -> object:
        if "known" in str(logs):
            raise KeyError("step")
        return real(logs, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(checking, "analyze", breaking)

    result = check(tmp_path)

    assert result.exit_code == 1  # the mark excuses a wrong answer, not a crash
    assert unwrapped("the analysis broke: KeyError: 'step'") in unwrapped(result.output)
    assert "1 right" in result.output


def test_signatures_of_ones_own_are_used(tmp_path: Path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.toml").write_text(
        'title = "ours"\nseen_in = ["1"]\nreference = "ours"\n[[signature]]\nid = "gremlin"\nsays = "met a gremlin"\n'
        "kind = \"hardware\"\nrole = \"cause\"\ncategory = \"gpu_hardware\"\npattern = '''gremlin \\s sighted'''\n"
        '[[signature.sample]]\nline = "gremlin sighted"\nfields = {}\n'
    )
    truth = RIGHT.replace("user_exception", "gpu_hardware").replace("KeyError: 'labels'", "gremlin")
    make(tmp_path / "fx", "ddp-gremlin", truth, "[rank0]: step 1\n[rank1]: step 1\n[rank1]: gremlin sighted\n")

    without = check(tmp_path / "fx")
    with_own = check(tmp_path / "fx", "--parsers", tmp_path / "own")

    assert "category: expected gpu_hardware" in without.output
    assert "category:" not in with_own.output


def test_junit_has_one_case_a_fixture(tmp_path: Path):
    make(tmp_path, "ddp-good", strategy="ddp")
    make(tmp_path, "ddp-bad", WRONG, strategy="ddp")
    make(tmp_path, "ddp-known", WRONG + MARK)
    make(tmp_path, "zero3-fixed", RIGHT + MARK)
    make(tmp_path, "zero3-nologs", log=None)

    result = check(tmp_path, "--junit", "-")

    suite = ElementTree.fromstring(result.stdout).find("testsuite")
    assert result.exit_code == 1
    assert suite is not None
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suite}
    bad, known, fixed = (cases[name][0] for name in ("ddp-bad", "ddp-known", "zero3-fixed"))
    assert len(cases["ddp-good"]) == 0
    assert cases["ddp-bad"].get("classname") == "fixtures.ddp"
    assert bad.tag == "failure" and bad.get("message") == "wrong: category, ranks"
    assert "expected dataloader" in (bad.text or "") and "user_exception" in (bad.text or "")
    assert known.tag == "skipped" and known.get("message") == "known failure: two ranks in one file"
    assert fixed.tag == "failure" and "take the mark" in (fixed.get("message") or "")
    assert cases["zero3-nologs"][0].tag == "error"


def test_json_holds_every_result_and_the_counts(tmp_path: Path):
    make(tmp_path, "ddp-good", strategy="fsdp1-full_shard")
    make(tmp_path, "ddp-bad", WRONG)
    make(tmp_path, "zero3-known", WRONG + MARK)

    result = check(tmp_path, "--json", tmp_path / "out.json")

    report = json.loads((tmp_path / "out.json").read_text())
    assert result.exit_code == 1 and "1 right" in result.output  # the table is still printed
    assert report["schema"] == "logforensics.check/1"
    assert report["counts"] == {"fixtures": 3, "unusable": 0, "wrong": 1, "fixed": 0, "known": 1, "right": 1}
    assert report["by_strategy"] == {
        "ddp": {"right": 0, "known": 0, "wrong": 1, "of": 1},
        "fsdp1-full_shard": {"right": 1, "known": 0, "wrong": 0, "of": 1},
        "zero3": {"right": 0, "known": 1, "wrong": 0, "of": 1},
    }
    assert report["by_confidence"] == {"medium": {"right": 1, "known": 1, "wrong": 1, "of": 3}}
    assert report["by_category"]["dataloader"] == {"right": 0, "known": 1, "wrong": 1, "of": 2}
    assert [item["state"] for item in report["fixtures"]] == ["wrong", "known", "right"]
    assert report["fixtures"][0]["differences"] == [
        {"key": "category", "expected": "dataloader", "said": "user_exception"},
        {"key": "ranks", "expected": "0", "said": "1"},
    ]
    assert report["fixtures"][1]["known_failure"] == "two ranks in one file"


def test_markdown_is_a_table_by_strategy_and_one_by_category(tmp_path: Path):
    make(tmp_path, "ddp-a")
    make(tmp_path, "ddp-b")
    make(tmp_path, "zero3-c", WRONG + MARK)

    lines = check(tmp_path, "--markdown", "-").stdout.split("\n")

    assert lines[:2] == [
        "| strategy | right | of | share | known | wrong |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    assert "| ddp | 2 | 2 | 100 % |  |  |" in lines
    assert "| zero3 | 0 | 1 | 0 % | 1 |  |" in lines
    assert lines.count("| all | 2 | 3 | 66 % | 1 |  |") == 3
    assert "| medium | 2 | 3 | 66 % | 1 |  |" in lines
    assert "| dataloader | 0 | 1 | 0 % | 1 |  |" in lines
    assert "- 3 fixtures: 2 right, 0 wrong, 1 known failure." in lines


def test_starting_the_program_loads_nothing_heavy():
    code = "import sys, logforensics.cli; print({'polars', 'jinja2', 'rich.table', 'hyperscan', 'torch'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


# --- finding --------------------------------------------------------------------------------------------------


def test_fixtures_are_found_at_any_depth_once_and_not_inside_one_another(tmp_path: Path):
    one = make(tmp_path / "deep" / "er", "ddp-one")
    two = make(tmp_path, "ddp-two")
    make(two / "logs", "inner")

    found = find_fixtures([tmp_path, one])

    assert [(fixture.name, fixture.folder) for fixture in found] == [("ddp-one", one), ("ddp-two", two)]


def test_equal_names_are_told_apart_by_their_folders(tmp_path: Path):
    folders = [make(tmp_path / "a", "ddp-x"), make(tmp_path / "b", "ddp-x")]

    assert [fixture.name for fixture in find_fixtures([tmp_path])] == [str(folder) for folder in folders]


def test_one_argument_without_a_fixture_is_refused_even_beside_a_good_one(tmp_path: Path):
    good = make(tmp_path, "ddp-x")
    (tmp_path / "empty").mkdir()

    with pytest.raises(FixtureError, match="empty: no fixture here"):
        find_fixtures([good, tmp_path / "empty"])


# --- the truth ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RIGHT.replace("status", "state"), "state: is no key of a truth; did you mean status?"),
        (RIGHT + "zzz = 1\n", "zzz: is no key of a truth; known are status, category"),
        (RIGHT.replace('phase = "mid_training"\n', ""), "phase: is missing; say what the right answer is"),
        (
            RIGHT.replace("user_exception", "user_exeption"),
            "category: 'user_exeption' is unknown; did you mean user_exc",
        ),
        (RIGHT.replace('"diagnosed"', "3"), "status: 3 is unknown; it should be one of diagnosed, undetermined"),
        (RIGHT + 'also_acceptable = "dataloader"\n', "also_acceptable: should be a list of words"),
        (RIGHT + 'also_acceptable_phases = ["launch", "start"]\n', "also_acceptable_phases: 'start' is unknown"),
        (RIGHT.replace("[1]", "1"), "ranks: 1 is no list of global ranks; write ranks = [3], or [] for nobody"),
        (RIGHT.replace("[1]", "[true]"), "ranks: [True] is no list of global ranks"),
        (
            RIGHT + "also_acceptable_ranks = [0]\n",
            "also_acceptable_ranks: 0 is no list of global ranks; write also_acc",
        ),
        (RIGHT + "also_acceptable_ranks = 0\n", "also_acceptable_ranks: should be a list of lists"),
        (RIGHT.replace("\"KeyError: 'labels'\"", "7"), "evidence: 7 should be a literal of the line to point at"),
        (RIGHT + 'known_failure = ""\n', "known_failure: '' should be the reason in words"),
    ],
)
def test_a_mistake_in_a_truth_is_named_with_file_and_key(tmp_path: Path, text: str, said: str):
    path = tmp_path / "truth.toml"
    path.write_text(text)

    with pytest.raises(TruthError) as problem:
        read_truth(path)

    assert f"{path}: {said}" in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_truth_is_read_with_all_that_is_acceptable(tmp_path: Path):
    path = tmp_path / "truth.toml"
    path.write_text(
        RIGHT.replace("\"KeyError: 'labels'\"", '["one", "two"]')
        + 'also_acceptable = ["dataloader"]\nalso_acceptable_ranks = [[], [0, 1]]\nnote = "hm"\n'
        + 'also_acceptable_phases = ["unknown"]\nalso_acceptable_status = ["undetermined"]\n'
    )

    assert read_truth(path) == Truth(
        ("diagnosed", "undetermined"),
        ("user_exception", "dataloader"),
        (frozenset({1}), frozenset(), frozenset({0, 1})),
        ("mid_training", "unknown"),
        ("one", "two"),
    )


def test_of_a_run_that_did_not_fail_no_rank_or_phase_need_be_named(tmp_path: Path):
    path = tmp_path / "truth.toml"
    path.write_text('status = "no_failure"\ncategory = "no_failure"\n')

    assert read_truth(path).failed is False


# --- the comparison -------------------------------------------------------------------------------------------
# ordinary() says: diagnosed, user_exception, rank 1, mid_training, "ValueError: boom" in lines 10 and 11.


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, []),
        ({"statuses": ("undetermined",)}, ["status"]),
        ({"statuses": ("undetermined", "diagnosed")}, []),
        ({"categories": ("dataloader",)}, ["category"]),
        ({"categories": ("dataloader", "user_exception")}, []),
        ({"ranks": (frozenset({1, 2}),)}, ["ranks"]),
        ({"ranks": (frozenset(), frozenset({1}))}, []),
        ({"phases": ("launch",)}, ["phase"]),
        ({"phases": ("launch", "mid_training")}, []),
        ({"evidence": ("OSError",)}, ["evidence"]),
        ({"evidence": ("OSError", "ValueError: boom")}, []),
        ({"evidence": ()}, []),
        ({"evidence": ("before ",)}, ["evidence"]),  # in the excerpt, but above the line pointed at
        ({"statuses": ("no_failure",), "categories": ("no_failure",), "phases": ()}, ["status", "category"]),
    ],
)
def test_each_key_is_compared_with_all_that_is_acceptable(changed: dict[str, tuple[str, ...]], wrong: list[str]):
    comparison = compare(ordinary(), replace(TRUTH, **changed))  # type: ignore[arg-type]

    assert [difference.key for difference in comparison.differences] == wrong
    assert comparison.right is not bool(wrong)
    assert comparison.confidence == "high"


def test_only_the_first_place_pointed_at_is_read():
    places = [Evidence("a.log", number, number, f"line {number}") for number in range(1, 3)]
    analysis = analysis_of([event(1, "x", 0)], [], evidence=places)

    assert compare(analysis, replace(TRUTH, evidence=("line 1",))).right
    (difference,) = compare(analysis, replace(TRUTH, evidence=("line 2", "line 5"))).differences
    assert difference.expected == '"line 2" or "line 5"'
    assert difference.said == "a.log:1: line 1"


def test_a_literal_may_stand_in_any_line_of_a_multi_line_event():
    analysis = analysis_of([event(1, "x", 0)], [])
    analysis.excerpts = {0: [(9, "above"), (10, "first"), (11, "second"), (12, "below")]}

    assert compare(analysis, replace(TRUTH, evidence=("second",))).right
    assert not compare(analysis, replace(TRUTH, evidence=("below",))).right


def test_of_a_run_that_did_not_fail_only_status_and_category_count():
    analysis = analysis_of([event(1, "x", 0)], [], status="no_failure", category="no_failure", phase="launch")

    assert compare(analysis, Truth(("no_failure",), ("no_failure",), (frozenset(),), ())).right


# --- hostile text ---------------------------------------------------------------------------------------------


def hostile_result(tmp_path: Path) -> Checked:
    analysis = analysis_of([event(1, HOSTILE, 0)], [], text=HOSTILE)
    truth = replace(TRUTH, evidence=("nowhere",), known_failure=f"because {HOSTILE}")
    return Checked(Fixture("ddp-hostile", tmp_path), "ddp", truth, compare(analysis, truth))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_log_text_in_a_difference_is_harmless_in_the_terminal_at_any_width(tmp_path: Path, width: int):
    out = io.StringIO()

    print_check([hostile_result(tmp_path)], Console(file=out, width=width, force_terminal=False))

    text = out.getvalue()
    assert "[boldred]" in unwrapped(text)  # shown as it is, not obeyed
    assert all(line.isprintable() and cell_len(line) <= width for line in text.split("\n"))


def test_a_wide_terminal_gets_a_table(tmp_path: Path):
    out = io.StringIO()
    truth = replace(TRUTH, categories=("dataloader",), known_failure="said twice")
    result = Checked(Fixture("ddp-x", tmp_path), "ddp", truth, compare(ordinary(), truth))

    print_check([result], Console(file=out, width=140))

    rows = [line.split() for line in out.getvalue().split("\n")]
    assert rows[0] == ["fixture", "key", "expected", "said", "confidence"]
    assert rows[2] == ["known", "ddp-x", "category", "dataloader", "user_exception", "high"]
    assert rows[3] == ["said", "twice"]


def test_log_text_in_a_difference_makes_valid_xml_and_json(tmp_path: Path):
    result = hostile_result(tmp_path)

    skipped = ElementTree.fromstring(to_junit([result]).encode()).find(".//skipped")
    assert skipped is not None and "<script>" in (skipped.get("message") or "")
    assert json.loads(json_text([result]))["fixtures"][0]["state"] == "known"
