"""The command line: every command and option, exit statuses, what goes where, and the same verdict from every wrapping."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from inputs import COMPRESS, FIXTURES, ROOT, SHAPE, SHAPE_TRUTH, Program, files_of, read_terminal, tar, write, zipped
from jsonschema import Draft202012Validator

from logforensics import __version__
from logforensics.render.json_report import schema

LOGS = SHAPE / "logs"
# Runs of every layout, strategy and kind of end.
DOZEN = [
    "ddp-bad_host-2nodes", "ddp-collate-processes-ray-4ranks", "ddp-none-tee", "ddp-shape-restart", "ddp-uneven-2nodes",
    "fsdp1-full_shard-sigkill", "fsdp2-dl_kill-kubectl-2nodes", "fsdp2-mismatch_op-tee-detail-fr", "zero1-key_error-combined",
    "zero2-stuck_sleep", "zero3-sigkill-deepspeed", "ddp-shape-record",
]  # fmt: skip


@pytest.fixture
def program(monkeypatch, capfd) -> Program:
    monkeypatch.setenv("COLUMNS", "100")
    return Program(monkeypatch, capfd)


def truth(name: str) -> dict[str, Any]:
    return tomllib.loads((FIXTURES / name / "truth.toml").read_text())


# -- analyze --------------------------------------------------------------------------------------------------


def test_the_verdict_is_plain_text_in_a_pipe(program):
    ran = program("analyze", LOGS)

    assert (ran.status, ran.err) == (0, "")
    assert "\x1b" not in ran.out and "\r" not in ran.out
    assert "Rank 1 failed first" in ran.out and SHAPE_TRUTH["evidence"] in ran.out.replace("\n", " ")
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(program, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))

    assert max(map(len, program("analyze", LOGS).out.splitlines())) <= width
    assert max(map(len, program("timeline", LOGS).out.splitlines())) <= width


@pytest.mark.parametrize("name", DOZEN)
def test_the_json_of_real_runs_is_valid_by_the_shipped_schema(program, name):
    report = program("analyze", FIXTURES / name / "logs", "--json", "-").report

    Draft202012Validator(schema()).validate(report)
    assert report["verdict"]["status"] in {truth(name)["status"], *truth(name).get("also_acceptable_status", [])}


def test_what_goes_to_standard_output_stands_there_alone(program):
    ran = program("analyze", LOGS, "--json", "-")

    assert ran.err == "" and json.loads(ran.out)["version"] == __version__


def test_every_output_is_written_in_one_run(program, tmp_path):
    outputs = {option: tmp_path / f"report.{option}" for option in ("html", "json", "parquet")}

    ran = program("analyze", LOGS, *(part for option, path in outputs.items() for part in (f"--{option}", path)))
    assert ran.status == 0 and "Rank 1 failed first" in ran.out
    assert "Rank 1 failed first" in outputs["html"].read_text()
    assert json.loads(outputs["json"].read_text())["verdict"]["ranks"] == SHAPE_TRUTH["ranks"]
    assert "event_id" in pl.read_parquet(outputs["parquet"]).columns


def test_a_report_may_be_replaced_but_never_a_log(program, tmp_path):
    write(tmp_path, files_of(LOGS))
    before = files_of(tmp_path)

    assert program("analyze", tmp_path, "--json", tmp_path / "report.json").status == 0
    assert program("analyze", tmp_path, "--json", tmp_path / "report.json").status == 0
    for log in before:
        ran = program("analyze", tmp_path, "--json", tmp_path / log)
        assert ran.status == 2 and "this is a file to read; name another one" in ran.err
    assert {name: content for name, content in files_of(tmp_path).items() if name in before} == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--json", "/nonexistent/x"], "--json /nonexistent/x: there is no folder /nonexistent; make it first"),
        (["--html", "/nonexistent/x"], "--html /nonexistent/x: there is no folder"),
        (["--parquet", "/nonexistent/x"], "--parquet /nonexistent/x: there is no folder"),
        (["--json", "/tmp"], "--json /tmp: this is a folder; name a file"),
        (["--json", "/dev/full"], "/dev/full: cannot be written (No space left on device)"),
        (["--json", "-", "--html", "-"], "can go to standard output; name files for the others"),
        (["--since", "garbage"], "'garbage' is no time; write it like 2026-11-30 19:11:05"),
        (["--until", "19:11"], "'19:11' is no time"),
        (["--world-size", "0"], "Invalid value for '--world-size'"),
        (["--world-size", "many"], "Invalid value for '--world-size'"),
        (["--parsers", "/nonexistent"], "/nonexistent: no such folder; give a folder of dialect files"),
        (["--jsn", "x"], "No such option: --jsn"),
        (["--json"], "Option '--json' requires an argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_end_in_one_line_and_status_2(program, arguments, says):
    ran = program("analyze", LOGS, *arguments)

    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("logforensics") and says in ran.err


@pytest.mark.parametrize(
    "arguments", [["analyze"], ["timeline"], ["nonsense"], ["parsers", "show"], ["parsers", "nonsense"]]
)
def test_missing_arguments_and_unknown_commands_name_the_help(program, arguments):
    ran = program(*arguments)

    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--help`" in ran.err


def test_the_program_alone_prints_its_help(program):
    ran = program()

    assert ran.status == 2 and "Usage: logforensics" in ran.err and "analyze" in ran.err


def test_since_and_until_leave_out_events_and_say_how_many(program):
    whole = program("analyze", LOGS, "--json", "-").report
    before = program("analyze", LOGS, "--until", "2020-01-01 00:00:00", "--json", "-").report
    after = program("analyze", LOGS, "--since", "2020-01-01T00:00:00Z", "--json", "-").report

    assert after["verdict"] == whole["verdict"]
    assert before["verdict"]["category"] != SHAPE_TRUTH["category"]
    assert any(line.startswith("the time chosen: ") for line in before["verdict"]["missing"])
    assert before["run"]["sources"][0]["events"] < whole["run"]["sources"][0]["events"]


def test_a_world_size_that_is_given_makes_ranks_without_a_log_missing(program):
    report = program("analyze", LOGS, "--world-size", 4, "--json", "-").report

    assert report["run"]["world_size"] == 4
    assert [state["rank"] for state in report["ranks"]] == [0, 1, 2, 3]
    assert any("2-3" in line and "4 ranks" in line for line in report["verdict"]["missing"])


_OWN = r"""
title = "Our trainer"
seen_in = ["ours 1"]
reference = "ours/train.py"

[[signature]]
id = "spoilt-shard"
says = "met a spoilt shard"
kind = "exception"
role = "cause"
category = "dataloader"
pattern = '^shard\s(?P<value>\d+)\sis\sspoilt'
[[signature.sample]]
line = "[rank1]: shard 7 is spoilt"
fields = { value = "7" }
"""


def test_signatures_of_ones_own_are_used_beside_the_shipped_ones(program, tmp_path):
    own = write(tmp_path / "own", {"ours.toml": _OWN.encode()})
    logs = write(tmp_path / "logs", {"train.log": b"[rank1]: step 1\n[rank3]: shard 9 is spoilt\n"})

    assert program("parsers", "check", own).out == f"{own}: all signatures are good\n"
    assert "ours/spoilt-shard" in program("parsers", "list", "--parsers", own).out
    assert (
        "ours/spoilt-shard (cause): {'value': '9'}"
        in program("parsers", "try", "shard 9 is spoilt", "--parsers", own).out
    )
    assert program("analyze", logs, "--json", "-").report["verdict"]["category"] != "dataloader"
    verdict = program("analyze", logs, "--parsers", own, "--json", "-").report["verdict"]
    assert (verdict["category"], verdict["ranks"]) == ("dataloader", [3])
    assert verdict["missing"] == ["no log of ranks 0, 2, which exist since higher ones do"]


# -- the same run in every wrapping ---------------------------------------------------------------------------


def essence(report: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how the logs came."""
    verdict = report["verdict"]
    return {
        **{key: verdict[key] for key in ("status", "category", "ranks", "phase", "confidence", "headline", "missing")},
        "evidence": [(item["text"], item["line"], item["rank"]) for item in verdict["evidence"]],
        "fates": [(state["rank"], state["fate"], state["exit_code"], state["last_step"]) for state in report["ranks"]],
        "world_size": report["run"]["world_size"],
    }


@pytest.mark.parametrize(
    "name", [SHAPE.name, "ddp-uneven-2nodes", "ddp-shape-restart", "zero3-truncated_file-deepspeed-per_rank"]
)
def test_folder_archives_and_standard_input_give_one_verdict(program, tmp_path, name):
    """An interleaved log, the trees of two nodes, a torchrun tree of two attempts, and a file a rank."""
    logs = FIXTURES / name / "logs"
    inside = files_of(logs)
    mtime = min(path.stat().st_mtime for path in logs.rglob("*") if path.is_file())
    packed = {f"logs/{name}": content for name, content in inside.items()}
    archives = {
        "run.tar": tar(packed, mtime=mtime),
        "run.tar.gz": COMPRESS["gz"](tar(packed, mtime=mtime)),
        "run.tar.zst": COMPRESS["zst"](tar(packed, mtime=mtime)),
        "run.zip": zipped(packed),
    }
    write(tmp_path / "archives", archives)
    write(tmp_path / "gz", {f"{name}.gz": COMPRESS["gz"](content) for name, content in inside.items()})
    write(tmp_path / "zst", {f"{name}.zst": COMPRESS["zst"](content) for name, content in inside.items()})

    expected = essence(program("analyze", logs, "--json", "-").report)
    known = truth(name)
    assert (expected["category"], expected["ranks"]) == (known["category"], known["ranks"])
    assert known["evidence"] in expected["evidence"][0][0]
    for way in (*(tmp_path / "archives" / archive for archive in archives), tmp_path / "gz", tmp_path / "zst"):
        assert essence(program("analyze", way, "--json", "-").report) == expected, way
    for stdin in [archives["run.tar.gz"], archives["run.tar"], *(inside.values() if len(inside) == 1 else [])]:
        assert essence(program("analyze", "-", "--json", "-", stdin=stdin).report) == expected


def test_the_folders_of_two_nodes_may_be_given_one_by_one(program):
    logs = FIXTURES / "ddp-uneven-2nodes" / "logs"

    whole = program("analyze", logs, "--json", "-").report
    parts = program("analyze", logs / "node0", logs / "node1", "--json", "-").report
    files = program("analyze", f"{logs}/**/*", "--json", "-").report
    assert essence(parts) == essence(files) == essence(whole)


def test_a_file_that_is_given_twice_counts_once(program):
    once = program("analyze", LOGS, "--json", "-").report
    twice = program("analyze", LOGS, LOGS / "train.log", LOGS / "train.log", "--json", "-").report

    assert twice == once


# -- parsers --------------------------------------------------------------------------------------------------


def test_every_signature_is_listed_and_can_be_shown(program):
    listed = program("parsers", "list")
    names = [line.split()[0] for line in listed.out.splitlines()]
    assert listed.status == 0 and len(names) == len(set(names)) > 100

    shown = program("parsers", "show", "pg_nccl/watchdog-timeout")
    assert "pg_nccl/watchdog-timeout" in names and shown.status == 0
    for word in ("pattern: ", "sample: ", "seen in: ", "role: symptom"):
        assert word in shown.out


def test_a_signature_that_does_not_exist_is_refused(program):
    ran = program("parsers", "show", "nonsense")

    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "logforensics: nonsense: no such signature; `logforensics parsers list` names them all\n"


def test_a_line_is_tried_with_its_prefixes(program):
    ran = program(
        "parsers", "try", "3: [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )

    assert ran.status == 0
    assert "without prefixes: torch.OutOfMemoryError" in ran.out and "'rank': 3" in ran.out
    assert "(cause)" in ran.out
    nothing = program("parsers", "try", "step by step").out
    assert nothing == "without prefixes: step by step\nno signature claims this line\n"
    own = program("parsers", "try", "my.OwnError: boom").out
    assert "no signature claims this line\nat the end of a traceback: python/" in own


def test_a_folder_of_signatures_is_checked(program, tmp_path):
    write(tmp_path, {"broken.toml": b"[[signature]]\nid = 'x'\n"})

    ran = program("parsers", "check", tmp_path)
    assert ran.status == 1 and "broken.toml" in ran.out and "Traceback" not in ran.out + ran.err
    assert program("parsers", "check", "/nonexistent").status == 2
    assert program("parsers", "check", ROOT / "parsers").status in {0, 1}


# -- the program itself ---------------------------------------------------------------------------------------


def test_the_version_is_told(program):
    assert program("--version").out == f"logforensics {__version__}\n"


@pytest.mark.parametrize("command", [[], ["analyze"], ["timeline"], ["parsers"], ["parsers", "try"], ["check"]])
def test_every_command_has_help(program, command):
    ran = program(*command, "--help")

    assert ran.status == 0 and ran.out.startswith(f"Usage: {' '.join(['logforensics', *command])}")


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "logforensics", *arguments], capture_output=True, timeout=60, **more)


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nsys.argv = ['logforensics', '--help']\nfrom logforensics.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert "Usage:" in ran.stdout
    assert not {"polars", "torch", "jinja2", "hyperscan", "numpy", "deepspeed", "zstandard", "yaml"} & set(
        ran.stderr.split()
    )


@pytest.mark.parametrize("arguments", [["analyze", str(LOGS), "--json", "-"], ["parsers", "list"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(arguments):
    ours, theirs = os.pipe()
    os.close(ours)
    ran = subprocess.run(
        [sys.executable, "-m", "logforensics", *arguments], stdout=theirs, stderr=subprocess.PIPE, timeout=60
    )
    os.close(theirs)

    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_full_disk_behind_standard_output_is_one_line():
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "logforensics", "analyze", str(LOGS)],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )

    assert (ran.returncode, ran.stderr) == (2, b"logforensics: No space left on device\n")


def test_a_cache_that_cannot_be_written_only_costs_time(monkeypatch, program):
    monkeypatch.setenv("LOGFORENSICS_CACHE", "/dev/null/cache")

    assert program("analyze", LOGS, "--json", "-").report["verdict"]["category"] == SHAPE_TRUTH["category"]


def test_a_run_folder_is_left_as_it_was(tmp_path):
    """Not a file, not a time; the mount may be read-only."""
    write(tmp_path, files_of(LOGS))

    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}

    before = state()
    ran = run("analyze", ".", "--json", "-", cwd=tmp_path)
    assert ran.returncode == 0 and state() == before


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_want_it(variables, coloured):
    import pty

    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS", "FORCE_COLOR"}}
    environment |= {"TERM": "xterm-256color", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "logforensics", "analyze", str(LOGS)], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = read_terminal(ours)

    assert process.wait(60) == 0
    assert "Rank 1 failed first" in shown.decode()
    assert (b"\x1b[3" in shown) == coloured


def test_ascii_terminals_get_ascii():
    ran = run("analyze", str(LOGS), env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})

    assert ran.returncode == 0 and ran.stdout.isascii() and b"Rank 1 failed first" in ran.stdout
