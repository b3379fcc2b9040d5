"""The timeline: the frame that the README promises, in causal reading order, with times that say how they are known."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import LAST_LINE, events_of, told

from logforensics.analysis import analyze
from logforensics.clock import SECOND
from logforensics.model import CATEGORIES, KINDS, ROLES, STREAMS, TIME_BASES, Event
from logforensics.timeline import issue_time, to_frame

SCHEMA = {
    "event_id": pl.UInt32,
    "source": pl.Categorical,
    "line": pl.UInt64,
    "end_line": pl.UInt64,
    "offset": pl.UInt64,
    "attempt": pl.Int16,
    "node": pl.Categorical,
    "rank": pl.Int32,
    "local_rank": pl.Int16,
    "pid": pl.Int64,
    "stream": pl.Enum(STREAMS),
    "time": pl.Datetime("us", "UTC"),
    "time_basis": pl.Enum(TIME_BASES),
    "time_error_us": pl.Int64,
    "kind": pl.Enum(KINDS),
    "signature": pl.Categorical,
    "role": pl.Enum(ROLES),
    "category": pl.Enum(CATEGORIES),
    "process_group": pl.String,
    "sequence": pl.Int64,
    "operation": pl.String,
    "message": pl.String,
    "fields": pl.String,
    "repeats": pl.UInt32,
}
WORDS = {
    "stream": ["stdout", "stderr", "launcher", "nccl", "scheduler", "kernel", "flight_recorder", "error_file", "config"],
    "time_basis": ["stamped", "derived", "bracketed", "none"],
    "kind": ["exception", "timeout", "collective", "exit", "signal", "teardown", "init", "progress", "config", "hardware",
             "network", "memory", "notice"],
    "role": ["cause", "either", "symptom", "pointer", "teardown", "progress", "context", "noise"],
}  # fmt: skip
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
TIMEOUT = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=493, OpType=ALLREDUCE, NumelIn=4, "
    "NumelOut=16, Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)


def us(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND + moment.microsecond


def stamped(second: int, message: str, milli: int = 0) -> str:
    return f"2026-11-30 19:{11 + second // 60}:{second % 60:02},{milli:03} {message}\n"


# --- the frame ------------------------------------------------------------------------------------------------


def check_schema(frame: pl.DataFrame) -> None:
    assert list(frame.schema.items()) == [
        (name, dtype() if isinstance(dtype, type) else dtype) for name, dtype in SCHEMA.items()
    ]


def test_the_columns_and_their_types_are_those_of_the_contract(tmp_path: Path):
    check_schema(to_frame(events_of(tmp_path, stamped(5, "[rank1]: " + ASSERT))))


def test_the_words_of_the_enums_are_those_of_the_contract():
    frame = to_frame([])

    for column, words in WORDS.items():
        assert frame[column].dtype.categories.to_list() == words


def test_no_event_gives_an_empty_frame_of_the_same_shape(tmp_path: Path):
    check_schema(to_frame([]))
    (tmp_path / "run.log").write_text("nothing that anybody wants to know\n")
    frame = analyze(tmp_path / "run.log", use_cache=False).timeline.filter(pl.col("signature") != LAST_LINE)
    assert frame.height == 0
    check_schema(frame)


def test_a_row_holds_what_the_line_says(tmp_path: Path):
    log = stamped(5, "[rank1]: " + TIMEOUT, milli=469)
    (row,) = to_frame(events_of(tmp_path, {"node0/launcher.err": "up\n" + log})).to_dicts()
    fields = json.loads(row.pop("fields"))

    assert row == {
        "event_id": 0,
        "source": "node0/launcher.err",
        "line": 2,
        "end_line": 2,
        "offset": 3,
        "attempt": 0,
        "node": "node0",
        "rank": 1,
        "local_rank": row["local_rank"],
        "pid": None,
        "stream": "launcher",
        "time": datetime(2026, 11, 30, 19, 11, 5, 469_000, tzinfo=UTC),
        "time_basis": "stamped",
        "time_error_us": 501,
        "kind": "timeout",
        "signature": "pg_nccl/watchdog-timeout",
        "role": "symptom",
        "category": row["category"],
        "process_group": None,
        "sequence": 493,
        "operation": "ALLREDUCE",
        "message": TIMEOUT,
        "repeats": 1,
    }
    assert (fields["elapsed_ms"], fields["timeout_ms"], fields["group_rank"]) == (600021, 600000, 1)


def test_the_frame_survives_parquet_and_csv(tmp_path: Path):
    frame = to_frame(events_of(tmp_path, stamped(5, "[rank1]: " + TIMEOUT)))
    file = io.BytesIO()
    frame.write_parquet(file)
    file.seek(0)

    check_schema(pl.read_parquet(file))
    assert frame.write_csv().count("\n") == 2


@pytest.mark.parametrize("line", [
    "[rank0]: " + TIMEOUT.replace("493", "9" * 25),
    "[rank0]: " + TIMEOUT.replace("600021", "9" * 25),
    "failed (exitcode: 1) local_rank: 999999 (pid: 99999999999999999999999) of binary: /usr/bin/python",
    "  rank      : 99999999999 (local_rank: 70000)\n  exitcode  : 1 (pid: 1)",
    "\ud83d\ude00 [rank1]: " + ASSERT,
    "[rank1]: " + ASSERT + "\x00" * 50,
])  # fmt: skip
def test_absurd_numbers_and_characters_do_not_break_the_frame(tmp_path: Path, line: str):
    check_schema(to_frame(events_of(tmp_path, {"run.log": line.encode("utf-8", "surrogatepass") + b"\n"})))


def test_absurd_attempts_in_a_path_do_not_break_the_frame(tmp_path: Path):
    check_schema(to_frame(events_of(tmp_path, {"x/attempt_99999999/88888888/stderr.log": ASSERT + "\n"})))


# --- times ----------------------------------------------------------------------------------------------------


def test_a_stamp_on_the_line_counts(tmp_path: Path):
    (event,) = events_of(tmp_path, stamped(5, ASSERT, milli=469))

    assert (event.time_us, event.time_basis, event.time_error_us) == (us("2026-11-30T19:11:05.469"), "stamped", 501)


def test_a_stamp_inside_the_message_wins_over_the_carriers(tmp_path: Path):
    """The launcher's summary tells when a child failed; it is printed later."""
    log = (
        "2026-11-30T20:00:00.1234567Z   time      : 2026-11-30_19:59:43\n"
        "2026-11-30T20:00:00.1234567Z   host      : node-1\n"
        "2026-11-30T20:00:00.1234567Z   rank      : 3 (local_rank: 1)\n"
        "2026-11-30T20:00:00.1234567Z   exitcode  : -9 (pid: 4241)\n"
        "2026-11-30T20:00:00.1234567Z   error_file: <N/A>\n"
    )
    (event,) = [e for e in events_of(tmp_path, log) if e.signature == "torchelastic/failure-entry"]

    assert (event.time_us, event.time_basis) == (us("2026-11-30T19:59:43.5"), "stamped")


def test_a_line_between_two_stamps_lies_in_their_middle(tmp_path: Path):
    _, event, _ = events_of(tmp_path, stamped(5, "step 1 loss 0.3") + ASSERT + "\n" + stamped(15, "step 2 loss 0.3"))

    assert (event.time_us, event.time_basis) == (us("2026-11-30T19:11:10"), "bracketed")
    assert event.time_error_us == 5 * SECOND


def test_over_a_wide_gap_the_earlier_stamp_is_taken_as_a_bound(tmp_path: Path):
    _, event, _ = events_of(tmp_path, stamped(5, "step 1 loss 0.3") + ASSERT + "\n" + stamped(605, "step 2 loss 0.3"))

    assert (event.time_us, event.time_basis) == (us("2026-11-30T19:11:05"), "bracketed")
    assert event.time_error_us == 600 * SECOND


@pytest.mark.parametrize(("above", "below"), [(True, False), (False, True)])
def test_a_line_beside_one_stamp_is_near_it(tmp_path: Path, above: bool, below: bool):
    stamp = stamped(5, "step 1 loss 0.3")
    events = events_of(tmp_path, stamp * above + ASSERT + "\n" + stamp * below)
    (event,) = [event for event in events if event.kind == "exception"]

    assert (event.time_us, event.time_basis) == (us("2026-11-30T19:11:05"), "bracketed")
    assert event.time_error_us >= 60 * SECOND


def test_without_any_stamp_there_is_no_time(tmp_path: Path):
    (event,) = events_of(tmp_path, ASSERT + "\n")

    assert (event.time_us, event.time_basis, event.time_error_us) == (None, "none", 0)


def test_a_collective_was_issued_as_long_before_its_timeout_as_it_ran(tmp_path: Path):
    (event,) = events_of(tmp_path, stamped(5, "[rank1]: " + TIMEOUT, milli=521))

    assert issue_time(event) == us("2026-11-30T19:01:05.500")


def test_without_its_running_time_the_timeout_itself_is_subtracted():
    event = Event("run.log", 1, 1, 0, "timeout", "x/y", "symptom", "m", time_us=us("2026-11-30T19:11:05"))
    assert issue_time(event) is None
    event.fields["timeout_ms"] = 600_000
    assert issue_time(event) == us("2026-11-30T19:01:05")
    event.time_us = None
    assert issue_time(event) is None


BARE = "[E ProcessGroupNCCL.cpp:828] " + TIMEOUT + "\n"


def test_an_unstamped_timeout_came_its_running_time_after_the_last_stamp(tmp_path: Path):
    event = events_of(tmp_path, stamped(5, "step 1 loss 0.3") + BARE)[-1]

    assert (event.time_us, event.time_basis) == (us("2026-11-30T19:21:05.021"), "derived")
    assert issue_time(event) == us("2026-11-30T19:11:05")


def test_an_unstamped_timeout_came_no_later_than_the_next_stamp(tmp_path: Path):
    events = events_of(tmp_path, stamped(5, "step 1 loss 0.3") + BARE + stamped(305, "step 2 loss 0.3"))

    assert (events[1].time_us, events[1].time_basis) == (us("2026-11-30T19:16:05"), "derived")
    assert events[1].time_error_us == 300 * SECOND


def test_an_unstamped_timeout_between_near_stamps_is_as_uncertain_as_they_are_apart(tmp_path: Path):
    events = events_of(tmp_path, stamped(5, "step 1 loss 0.3") + BARE + stamped(7, "step 2 loss 0.3"))

    assert (events[1].time_us, events[1].time_basis) == (us("2026-11-30T19:11:07"), "derived")
    assert events[1].time_error_us == 2 * SECOND


def test_what_others_said_meanwhile_does_not_date_a_timeout(tmp_path: Path):
    merged = (
        "0: " + stamped(5, "step 1 loss 0.3") + "0: " + BARE + "1: " + stamped(7, "reading shard 3 from shared storage")
    )
    events = events_of(tmp_path, merged)

    timeout = next(event for event in events if event.kind == "timeout")
    assert (timeout.time_us, timeout.time_basis) == (us("2026-11-30T19:21:05.021"), "derived")


def test_the_nearest_stamp_is_the_writers_own(tmp_path: Path):
    merged = "0: " + stamped(5, "step 1 loss 0.3") + "1: " + stamped(40, "step 1 loss 0.3") + "0: step 2 loss 0.3\n"
    events = events_of(tmp_path, merged)

    assert [(event.rank, event.time_us) for event in events if event.fields.get("step") == 2] == [
        (0, us("2026-11-30T19:11:05"))
    ]


# --- several logs in one file ------------------------------------------------------------------------------------


def test_logs_put_one_after_the_other_are_told_apart(tmp_path: Path):
    text = "".join(f"{rank}: step {step} loss 0.3\n" for rank in (0, 1) for step in (1, 2, 3))
    events = events_of(tmp_path, text)

    assert {(event.rank, event.section) for event in events if event.kind == "progress"} == {(0, 1), (1, 2)}


def test_ranks_that_take_turns_are_one_live_log(tmp_path: Path):
    text = "".join(f"{rank}: step {step} loss 0.3\n" for step in (1, 2, 3) for rank in (0, 1))

    assert {event.section for event in events_of(tmp_path, text)} == {0}


def test_watchdogs_that_speak_in_turn_are_one_live_log(tmp_path: Path):
    text = stamped(5, "0: step 1 loss 0.3") + "".join(
        f"[rank{rank}]:[E1130 19:21:05.172486545 ProcessGroupNCCL.cpp:629] [Rank {rank}] {TIMEOUT}\n"
        for rank in (1, 2, 3)
    )

    assert {event.section for event in events_of(tmp_path, text)} == {0}


# --- order ----------------------------------------------------------------------------------------------------


def test_files_are_woven_together_by_time(tmp_path: Path):
    files = {
        "rank0.log": stamped(5, ASSERT) + stamped(25, ASSERT),
        "rank1.log": stamped(15, ASSERT) + stamped(35, ASSERT),
    }
    events = events_of(tmp_path, files)

    assert [(event.rank, event.line) for event in events] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert [event.event_id for event in events] == [0, 1, 2, 3]


def test_the_order_of_a_file_wins_over_a_clock_that_was_set_back(tmp_path: Path):
    """Nine-digit fractions are another clock's, and clocks are set: in one writer's file order is certain."""
    log = stamped(45, ASSERT) + stamped(5, ASSERT) + stamped(50, ASSERT)

    assert [event.line for event in events_of(tmp_path, {"rank0.log": log})] == [1, 2, 3]


def test_what_has_no_time_stays_behind_what_its_file_said_before(tmp_path: Path):
    files = {
        "rank0.log": stamped(5, "step 1 loss 0.3") + stamped(6, "step 2 loss 0.3") + ASSERT + "\n",
        "rank1.log": stamped(1, ASSERT) + stamped(60, ASSERT),
    }

    assert [(event.rank, event.line) for event in told(events_of(tmp_path, files))] == [
        (1, 1), (0, 1), (0, 2), (0, 3), (1, 2),
    ]  # fmt: skip


ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 500))), max_size=12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ENTRIES, ENTRIES)
def test_one_writers_lines_keep_their_order_and_ids_count_up(tmp_path_factory: pytest.TempPathFactory, first, second):
    def log(entries) -> str:
        lines = [(f"[rank{rank}]: {ASSERT}\n", second) for rank, second in entries]
        return "up\n" + "".join(line if at is None else stamped(at, line[:-1]) for line, at in lines)

    events = told(events_of(tmp_path_factory.mktemp("order"), {"a.log": log(first), "b.log": log(second)}))
    by_writer: dict[tuple[str, int | None], list[int]] = {}
    for event in events:
        by_writer.setdefault((event.source, event.rank), []).append(event.line)

    assert all(lines == sorted(lines) for lines in by_writer.values())
    assert len(events) == len(first) + len(second)
    assert [event.event_id for event in events] == sorted(event.event_id for event in events)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 500), max_size=10), st.lists(st.integers(0, 500), max_size=10))
def test_clocks_that_only_go_forward_give_a_timeline_that_only_goes_forward(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], second: list[int]
):
    files = {
        f"rank{rank}.log": "up\n" + "".join(stamped(at, ASSERT) for at in sorted(seconds))
        for rank, seconds in enumerate((first, second))
    }
    times = [event.time_us for event in told(events_of(tmp_path_factory.mktemp("forward"), files))]

    assert times == sorted(times)
    assert len(times) == len(first) + len(second)
