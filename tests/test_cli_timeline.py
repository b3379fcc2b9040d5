"""The timeline command: a table, csv, json and parquet of the same events, and the filters."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from typing import Any

import polars as pl
import pytest
from inputs import SHAPE, SHAPE_TRUTH, Program

from logforensics.model import KINDS, ROLES

LOGS = SHAPE / "logs"


@pytest.fixture
def program(monkeypatch, capfd) -> Program:
    monkeypatch.setenv("COLUMNS", "100")
    return Program(monkeypatch, capfd)


def frame(ran: Any) -> pl.DataFrame:
    assert ran.status == 0, ran.err
    return pl.DataFrame([json.loads(line) for line in ran.out.splitlines()], infer_schema_length=None)


def test_the_timeline_is_a_table_with_a_line_that_counts(program):
    ran = program("timeline", LOGS)

    assert ran.status == 0 and "\x1b" not in ran.out
    assert "events" in ran.out.splitlines()[-1] or "events" in " ".join(ran.out.splitlines()[-3:])
    assert SHAPE_TRUTH["evidence"] in " ".join(ran.out.split())


def test_csv_json_and_parquet_hold_the_same_events(program, tmp_path):
    events = frame(program("timeline", LOGS, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(program("timeline", LOGS, "--format", "csv").out)))
    assert program("timeline", LOGS, "--format", "parquet", "-o", tmp_path / "t.parquet").out == ""
    stored = pl.read_parquet(tmp_path / "t.parquet")

    assert events.columns == list(rows[0]) == stored.columns
    assert len(events) == len(rows) == len(stored) > 10
    for column in ("event_id", "source", "line", "rank", "kind", "signature", "role", "message", "sequence"):
        texts = ["" if value is None else str(value) for value in stored[column].to_list()]
        assert [row[column] for row in rows] == texts
        assert ["" if value is None else str(value) for value in events[column].to_list()] == texts
    assert stored["time"].dtype == pl.Datetime("us", "UTC")
    assert all(isinstance(json.loads(text), dict) for text in stored["fields"])


def test_a_table_that_goes_to_a_file_is_csv(program, tmp_path):
    program("timeline", LOGS, "-o", tmp_path / "t.csv")

    assert (tmp_path / "t.csv").read_text().startswith("event_id,source,line,")


def test_parquet_goes_through_a_pipe_but_not_to_a_terminal(tmp_path):
    command = [sys.executable, "-m", "logforensics", "timeline", str(LOGS), "--format", "parquet"]
    piped = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert pl.read_parquet(io.BytesIO(piped.stdout)).height > 10
    ours, theirs = pty.openpty()
    refused = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, timeout=60)
    os.close(theirs)
    os.close(ours)
    assert (refused.returncode, refused.stderr) == (2, b"logforensics: --output -: Parquet is binary; name a file\n")


def test_filters_choose_by_rank_kind_role_and_time(program):
    def chosen(*arguments: object) -> pl.DataFrame:
        return frame(program("timeline", LOGS, "--format", "json", *arguments))

    everything = chosen()
    assert chosen("--rank", 1).equals(everything.filter(pl.col("rank") == 1))
    assert chosen("--rank", 0, "--rank", 1).equals(everything.filter(pl.col("rank").is_in([0, 1])))
    assert chosen("--kind", "exception", "--kind", "exit").equals(
        everything.filter(pl.col("kind").is_in(["exception", "exit"]))
    )
    assert chosen("--role", "cause").equals(everything.filter(pl.col("role") == "cause"))
    assert chosen("--kind", "exception", "--rank", 1, "--role", "cause").height == 1
    moment = everything.filter(pl.col("role") == "cause")["time"][0]
    near = chosen("--around", moment, "--window", "0.2")
    assert 0 < near.height < everything.height
    assert chosen("--around", moment.replace("T", " ").partition(" ")[2][:15], "--window", "0.2").equals(near)


def test_filters_that_let_nothing_through_say_so(program):
    assert "No event passes the filters" in program("timeline", LOGS, "--rank", 77).out
    empty = program("timeline", LOGS, "--rank", 77, "--format", "csv")
    assert empty.status == 0 and empty.out.startswith("event_id,") and empty.out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kind", "nonsense"], f"--kind 'nonsense' is not one of {', '.join(KINDS)}"),
        (["--role", "nonsense"], f"--role 'nonsense' is not one of {', '.join(ROLES)}"),
        (["--format", "xml"], "--format 'xml' is not one of table, csv, json, parquet"),
        (["--around", "noonish"], "'noonish' is no time; write it like 19:11:05"),
        (["--window", "-1", "--around", "10:00:00"], "Invalid value for '--window'"),
        (["--rank", "one"], "Invalid value for '--rank'"),
        (["-o", "/nonexistent/x"], "--output /nonexistent/x: there is no folder /nonexistent; make it first"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_filters_end_in_one_line_and_status_2(program, arguments, says):
    ran = program("timeline", LOGS, *arguments)

    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err
