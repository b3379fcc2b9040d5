"""Flight recorder dumps: every version is read, nothing in them is run, and all ranks together name the culprit."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from dumps import BACKWARD, SAVE, START_NS, call, done, dump, write
from hypothesis import given, settings
from hypothesis import strategies as st

from logforensics import analyze
from logforensics.analysis import Analysis
from logforensics.correlate.recorder import compare
from logforensics.flight_recorder import Dump, read_dump
from logforensics.safe_pickle import UnsafePickleError, load_plain
from logforensics.sources import collect

ROOT = Path(__file__).parents[1]
REAL = ROOT / "tests" / "data" / "flight_recorder"
FIXTURES = ROOT / "fixtures"


def dumps_of(folder: Path) -> list[Dump]:
    with collect([folder]) as sources:
        return [read_dump(source)[0] for source in sources.found if source.kind == "flight_recorder"]


def judged(folder: Path, **options: Any) -> Analysis:
    return analyze(folder, use_cache=False, **options)


def answer(analysis: Analysis) -> tuple[str, list[int]]:
    return analysis.verdict.category, analysis.verdict.ranks


# -- reading -------------------------------------------------------------------------------------------------------


def test_a_real_dump_is_read_call_by_call() -> None:
    dumps = dumps_of(FIXTURES / "ddp-slow_eval-fr" / "logs")

    assert [dump.rank for dump in dumps] == [0]
    assert [dump.version for dump in dumps] == ["2.10"]
    last = dumps[0].calls[-1]
    assert (last.operation, last.sequence, last.backend, last.retired) == ("BROADCAST", 15, "gloo", True)
    assert last.group.ranks == (0, 1)
    assert last.created_us == 1796076941835585
    assert last.frames[-1].function == "_distributed_broadcast_coalesced"
    assert last.frames[0].function == "<module>"


def test_what_torch_pickles_and_what_it_writes_as_json_is_the_same(tmp_path: Path) -> None:
    raw = (REAL / "gloo-absent" / "nccl_trace_rank_0").read_bytes()
    (tmp_path / "nccl_trace_rank_0").write_bytes(raw)
    (tmp_path / "json").mkdir()
    text = (REAL / "gloo-absent" / "nccl_trace_rank_0.json").read_bytes()
    (tmp_path / "json" / "nccl_trace_rank_0.json").write_bytes(text)

    first, second = dumps_of(tmp_path)

    assert load_plain(raw) == pickle.loads(raw)
    assert [(c.sequence, c.operation, c.elements, c.created_us, c.retired) for c in first.calls] == [
        (c.sequence, c.operation, c.elements, c.created_us, c.retired) for c in second.calls
    ]


OLD = {key: value for key, value in call(7).items() if key not in {"is_p2p", "timeout_ms", "thread_name", "thread_id"}}


@pytest.mark.parametrize(
    ("version", "table"),
    [
        ("2.0", [{**{k: v for k, v in OLD.items() if k != "collective_seq_id"}, "seq_id": 7, "process_group": "0"}]),
        (
            "2.1",
            {"version": "2.1", "pg_config": {"0": {"name": "0", "desc": "x", "ranks": "[0, 1]"}}, "entries": [OLD]},
        ),
        ("2.4", {"version": "2.4", "pg_status": {"0": {"last_enqueued_collective": 7}}, "entries": [call(7)]}),
        ("2.10", dump([call(7)], [0, 1])),
        ("lists", dump([{**call(7), "process_group": ["0", "default_pg"]}], [0, 1])),
    ],
)
def test_every_version_gives_its_calls(tmp_path: Path, version: str, table: Any) -> None:
    write(tmp_path, {3: table})

    (found,) = dumps_of(tmp_path)

    assert found.rank == 3
    assert [(c.sequence, c.operation, c.state, c.group.name) for c in found.calls] == [
        (7, "ALLREDUCE", "completed", "0")
    ]


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("nccl_trace_rank_12", 12, None),
        ("comm_lib_trace_rank_0", 0, None),
        ("nccl_trace_rank_3.json", 3, None),
        ("gpu-a17_nccl_trace_rank_5", 5, "gpu-a17"),
        ("nccl_trace_rank_5.gpu-a17", 5, "gpu-a17"),
        ("nccl_trace_gpu-a17_rank_5", 5, "gpu-a17"),
        ("node1/nccl_trace_rank_9", 9, "node1"),
        ("fr_4", 4, None),
        ("dump", None, None),
    ],
)
def test_the_name_says_which_rank_and_which_host(tmp_path: Path, name: str, rank: int | None, host: str | None) -> None:
    path = tmp_path / "logs" / name
    path.parent.mkdir(parents=True)
    table = dump(done(1), [0, 1])
    path.write_bytes(json.dumps(table).encode() if name.endswith(".json") else pickle.dumps(table))

    (found,) = dumps_of(tmp_path)

    assert (found.rank, found.host) == (rank, host)


def test_broken_entries_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {0: dump([*done(1), {"profiling_name": 7}, "no entry", {**call(2), "collective_seq_id": -1}])})

    analysis = judged(tmp_path)

    assert [note.what for note in analysis.notes] == ["3 entries of this flight recorder dump are broken; left out"]
    assert [event.sequence for event in analysis.events if event.kind == "collective"] == [1]


def test_of_a_long_dump_the_newest_calls_are_kept(tmp_path: Path) -> None:
    write(tmp_path, {0: dump(done(*range(1, 51)), [0, 1])})
    with collect([tmp_path]) as sources:
        found, note = read_dump(sources.found[0], most_calls=2)

    assert [(call.number, call.sequence) for call in found.calls] == [(49, 49), (50, 50)]
    assert note is None


# -- hostile -------------------------------------------------------------------------------------------------------


class Runs:
    """What a pickle can do when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def persistent() -> bytes:
    class Asking(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return "outside" if value == "x" else None

    target = io.BytesIO()
    Asking(target, 2).dump({"entries": "x"})
    return target.getvalue()


NESTED_KEY = b"\x80\x02)q\x00" + b"h\x00\x86q\x00" * 60 + b"}h\x00K\x01s."
HOSTILE = {
    "a class": pickle.dumps(Path("x"), 2),
    "another protocol's class": pickle.dumps(Path("x"), 4),
    "a persistent id": persistent(),
    "a huge text": b"\x80\x02X\xff\xff\xff\xffab.",
    "a huge array": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "a huge integer": b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".",
    "a key that never ends being hashed": NESTED_KEY,
    "deep nesting": b"\x80\x02" + b"(" * 1_000_000 + b".",
    "a tuple in a tuple": pickle.dumps((((1,),),), 2),
    "no end": pickle.dumps(dump(done(1), [0]), 2)[:-1],
    "nothing": b"\x80\x02",
    "an unknown protocol": b"\x80\x09}.",
    "a stack that is empty": b"\x80\x02a.",
    "a mark that is missing": b"\x80\x02}u.",
    "a value it never had": b"\x80\x02h\x07.",
    "text instructions": b"\x80\x02I1\n.",
    "a set": pickle.dumps({1, 2}, 4),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_no_pickle_but_a_plain_one_is_read(data: bytes) -> None:
    with pytest.raises(UnsafePickleError):
        load_plain(data)


def test_a_huge_memo_index_takes_no_memory() -> None:
    """The interpreter's own reader makes a table of that many places."""
    assert load_plain(b"\x80\x02}r\xff\xff\xff\xff.") == {}


def test_a_dump_that_would_run_something_is_refused_in_one_note_and_the_rest_analysed(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    write(tmp_path / "logs", {0: dump([*done(1), call(2, state="scheduled")], [0, 1, 2]), 1: dump(done(1), [0, 1, 2])})
    (tmp_path / "logs" / "nccl_trace_rank_2").write_bytes(pickle.dumps({"entries": [Runs(mark)]}, 2))

    analysis = judged(tmp_path / "logs")

    assert not mark.exists()
    assert [(note.source, note.what) for note in analysis.notes] == [
        (
            "nccl_trace_rank_2",
            "a flight recorder dump that cannot be read: it would run code or build objects when loaded; "
            "nothing in it was run; skipped",
        )
    ]
    assert answer(analysis) == ("unknown_timeout", [1])


@pytest.mark.parametrize(
    "data",
    [
        b'{"entries": ' + b"[" * 200_000,
        b'{"entries": 1e999999, "pg_status": ' + b"9" * 100_000 + b"}",
        b"{}",
        b"[1, 2]",
    ],
    ids=["deep", "huge number", "empty", "no calls"],
)
def test_json_that_is_no_dump_is_one_note(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "nccl_trace_rank_0.json").write_bytes(data)
    (tmp_path / "run.log").write_text("step 1 loss 0.5\n")

    analysis = judged(tmp_path)

    assert [note.source for note in analysis.notes] == ["nccl_trace_rank_0.json"]
    assert "flight recorder dump that cannot be read" in analysis.notes[0].what


def test_absurd_values_do_not_break_the_report(tmp_path: Path) -> None:
    wild = call(1 << 62, state="scheduled", size=(1 << 62))
    wild.update(
        input_sizes=[[1 << 62] * 400] * 3, time_created_ns=(1 << 62), timeout_ms="soon", process_group=("x" * 9999, 7)
    )
    write(tmp_path, {0: dump([wild], [0, 1], version=7), 1: dump([], [0, 999_999_999], pg_status=[])})

    analysis = judged(tmp_path)

    assert analysis.timeline.height == len(analysis.events)
    assert analysis.identity.world_size == 2


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for framed in (b"\x80\x02" + data, data):
        try:
            value = load_plain(framed)
        except UnsafePickleError:
            continue
        assert isinstance(value, dict | list | tuple | str | bytes | int | float | bool | None)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 100), 1 << 100)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN, st.integers(3, 5))
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back_as_they_were(value: Any, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_one_changed_byte_of_a_real_dump_never_breaks_anything(data: st.DataObject) -> None:
    raw = bytearray((REAL / "gloo-absent" / "nccl_trace_rank_0").read_bytes())
    place = data.draw(st.integers(2, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    try:
        load_plain(bytes(raw))
    except UnsafePickleError as error:
        assert str(error)


# -- all ranks together --------------------------------------------------------------------------------------------

FOUR = [0, 1, 2, 3]


def test_the_rank_that_never_entered_is_named(tmp_path: Path) -> None:
    waiting = dump([*done(1, 2, 3), call(4, state="started"), call(5, state="scheduled")], FOUR)
    write(tmp_path, {0: waiting, 1: waiting, 2: dump(done(1, 2, 3), FOUR), 3: waiting})

    analysis = judged(tmp_path)

    assert answer(analysis) == ("unknown_timeout", [2])
    assert analysis.verdict.confidence == "medium"
    (state,) = analysis.collectives
    assert (state.sequence, state.operation, state.waiting, state.absent) == (4, "ALLREDUCE", [0, 1, 3], [2])
    assert [rank.fate for rank in analysis.ranks] == ["timed_out", "timed_out", "origin", "timed_out"]


@pytest.mark.parametrize(
    "odd",
    [
        call(4, "all_gather", state="started"),
        call(4, state="started", size=512),
        call(4, state="started", dtype="Half"),
    ],
    ids=["operation", "size", "dtype"],
)
def test_the_rank_that_called_something_else_is_named(tmp_path: Path, odd: dict[str, Any]) -> None:
    waiting = dump([*done(1, 2, 3), call(4, state="started")], FOUR)
    write(tmp_path, {0: waiting, 1: dump([*done(1, 2, 3), odd], FOUR), 2: waiting, 3: waiting})

    analysis = judged(tmp_path)

    assert answer(analysis) == ("collective_mismatch", [1])
    assert (analysis.verdict.status, analysis.verdict.confidence) == ("diagnosed", "high")
    assert [row["rank"] for row in analysis.collectives[0].mismatched] == [1]


def test_a_rank_that_skipped_one_collective_is_named_at_the_first_difference(tmp_path: Path) -> None:
    order = ["broadcast", "all_reduce", "all_gather", "all_reduce"]
    full = [call(n, name, state="scheduled" if n == 4 else "completed") for n, name in enumerate(order, 1)]
    short = [call(n, name) for n, name in enumerate(["broadcast", "all_gather"], 1)] + [call(3, state="scheduled")]
    write(tmp_path, {0: dump(full, FOUR), 1: dump(full, FOUR), 2: dump(full, FOUR), 3: dump(short, FOUR)})

    analysis = judged(tmp_path)

    assert answer(analysis) == ("collective_mismatch", [3])
    assert analysis.collectives[0].sequence == 2


def test_of_two_ranks_that_differ_neither_is_the_odd_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            0: dump([call(1, state="scheduled")], [0, 1]),
            1: dump([call(1, "broadcast", state="scheduled")], [0, 1]),
        },
    )

    analysis = judged(tmp_path)

    assert answer(analysis) == ("collective_mismatch", [0, 1])
    assert analysis.verdict.confidence == "medium"


@pytest.mark.parametrize("operation", ["all_to_all", "scatter", "gather"])
def test_where_each_rank_may_give_another_amount_sizes_say_nothing(tmp_path: Path, operation: str) -> None:
    tables = {rank: dump([*done(1), call(2, operation, size=100 + rank, state="started")], FOUR) for rank in FOUR}
    write(tmp_path, tables)

    assert answer(judged(tmp_path)) == ("unknown_timeout", [])


def test_when_all_wait_in_one_collective_nobody_is_blamed(tmp_path: Path) -> None:
    write(tmp_path, {rank: dump([*done(1, 2), call(3, state="started")], FOUR) for rank in FOUR})

    analysis = judged(tmp_path)

    assert (analysis.verdict.status, *answer(analysis)) == ("undetermined", "unknown_timeout", [])
    assert analysis.collectives[0].waiting == FOUR


def test_the_one_rank_without_a_dump_is_a_suspect(tmp_path: Path) -> None:
    write(tmp_path, {rank: dump([*done(1, 2), call(3, state="started")], FOUR) for rank in (0, 1, 3)})

    analysis = judged(tmp_path)

    assert answer(analysis) == ("unknown_timeout", [2])
    assert analysis.verdict.confidence == "low"
    assert any("no flight recorder dump of rank 2" in line for line in analysis.verdict.missing)


def test_dumps_of_one_node_out_of_four_accuse_nobody(tmp_path: Path) -> None:
    everyone = list(range(16))
    write(tmp_path, {rank: dump([*done(1, 2), call(3, state="started")], everyone) for rank in range(4)})

    assert answer(judged(tmp_path)) == ("unknown_timeout", [])


def test_a_rank_that_waits_in_another_group_is_a_victim_too(tmp_path: Path) -> None:
    """Rank 3 hangs; its partner 2 waits for it in their pair, and rank 0 waits for rank 2."""
    pairs = {"1": ("tp", [2, 3]), "2": ("dp", [0, 2])}
    tables = {
        0: dump([*done(1), call(5, state="scheduled", group=("2", "dp"))], FOUR, groups=pairs),
        1: dump(done(1), FOUR, groups=pairs),
        2: dump([*done(1), call(9, state="scheduled", group=("1", "tp"))], FOUR, groups=pairs),
        3: dump(done(1), FOUR, groups=pairs),
    }
    write(tmp_path, tables)

    assert answer(judged(tmp_path)) == ("unknown_timeout", [3])


def test_two_groups_that_wait_for_each_other_are_a_mismatch(tmp_path: Path) -> None:
    groups = {"1": ("a", FOUR), "2": ("b", FOUR)}
    first = [call(1, group=("1", "a")), call(1, group=("2", "b")), call(2, state="scheduled", group=("1", "a"))]
    other = [call(1, group=("1", "a")), call(1, group=("2", "b")), call(2, state="scheduled", group=("2", "b"))]
    tables = {rank: dump(other if rank == 3 else first, FOUR, groups=groups) for rank in FOUR}
    write(tmp_path, tables)

    assert answer(judged(tmp_path)) == ("collective_mismatch", [3])


def test_calls_that_were_coalesced_are_one_collective(tmp_path: Path) -> None:
    """The parts of a coalesced collective never complete by themselves; the last entry has their state."""
    batch = [
        {**call(2, "_all_gather_base", state="scheduled", retired=False)},
        {**call(2, "_all_gather_base", state="scheduled", retired=False)},
        {**call(2, "ALLGATHER_coalesced")},
    ]
    waiting = dump([*done(1), *batch, call(3, state="started")], FOUR)
    write(tmp_path, {0: waiting, 1: waiting, 2: waiting, 3: dump([*done(1), *batch], FOUR)})

    analysis = judged(tmp_path)

    assert answer(analysis) == ("unknown_timeout", [3])
    assert analysis.collectives[0].sequence == 3


def test_a_receive_that_nobody_sends_to_names_the_sender(tmp_path: Path) -> None:
    receive = call(3, "recv 1<-0", state="started", p2p=1)
    write(tmp_path, {0: dump(done(1, 2), [0, 1]), 1: dump([*done(1, 2), receive], [0, 1])})

    assert answer(judged(tmp_path)) == ("unknown_timeout", [0])


def test_subgroup_ranks_are_turned_into_global_ones(tmp_path: Path) -> None:
    stage = {"1": ("pp", [1, 3])}
    receive = call(3, "recv 1<-0", state="started", p2p=1, group=("1", "pp"))
    tables = {rank: dump(done(1, 2), FOUR, groups=stage) for rank in FOUR}
    tables[3] = dump([*done(1, 2), receive], FOUR, groups=stage)
    write(tmp_path, tables)

    assert answer(judged(tmp_path)) == ("unknown_timeout", [1])


def test_a_full_ring_of_one_rank_does_not_make_others_differ(tmp_path: Path) -> None:
    waiting = [*done(*range(50, 60)), call(60, state="started")]
    tables = {
        0: dump(waiting, FOUR),
        1: dump(waiting, FOUR),
        2: dump(waiting[6:], FOUR),
        3: dump(done(*range(1, 60)), FOUR),
    }
    write(tmp_path, tables)

    assert answer(judged(tmp_path)) == ("unknown_timeout", [3])


def test_dumps_asked_of_a_run_that_goes_on_show_no_failure(tmp_path: Path) -> None:
    folder = write(tmp_path, {0: dump([*done(1), call(2, state="started")], [0, 1]), 1: dump(done(1), [0, 1])})
    for path, newest in ((folder / "nccl_trace_rank_0", 2), (folder / "nccl_trace_rank_1", 1)):
        os.utime(path, ns=(0, START_NS + newest * 1_000_000_000 + 500_000_000))

    assert judged(folder).verdict.status == "no_failure"


def test_dumps_in_which_everything_ended_show_no_failure(tmp_path: Path) -> None:
    write(tmp_path, {rank: dump(done(1, 2, 3), FOUR) for rank in FOUR})

    assert judged(tmp_path).verdict.status == "no_failure"


def test_where_it_waits_says_in_which_phase(tmp_path: Path) -> None:
    waiting = dump([*done(1), call(2, "barrier", state="started", frames=SAVE)], [0, 1])
    write(tmp_path, {0: waiting, 1: dump(done(1, frames=BACKWARD), [0, 1])})

    analysis = judged(tmp_path)

    assert analysis.verdict.phase == "checkpoint"
    stuck = next(event for event in analysis.events if event.signature == "flight_recorder/waiting")
    assert stuck.fields["activity"] == "checkpoint_save"
    assert stuck.fields["where"] == "/home/user/project/train.py:150 in save_checkpoint"


@pytest.mark.parametrize(
    ("name", "expected"), [("gloo-absent", ("unknown_timeout", [2])), ("gloo-mismatch", ("collective_mismatch", [1]))]
)
def test_real_dumps_of_three_ranks_name_the_culprit(tmp_path: Path, name: str, expected: tuple[str, list[int]]) -> None:
    """torch 2.13, gloo: rank 2 slept, or rank 1 broadcast where the others reduced."""
    for path in sorted((REAL / name).iterdir()):
        if path.suffix != ".json":
            (tmp_path / path.name).write_bytes(path.read_bytes())

    assert answer(judged(tmp_path)) == expected


def test_the_latest_of_two_dumps_of_one_rank_counts(tmp_path: Path) -> None:
    waiting = dump([*done(1, 2), call(3, state="started")], [0, 1])
    write(tmp_path / "first", {0: dump([call(1, state="started")], [0, 1]), 1: dump([], [0, 1])})
    write(tmp_path / "second", {0: waiting, 1: dump(done(1, 2), [0, 1])})

    (state,) = compare(dumps_of(tmp_path))

    assert (state.sequence, state.absent) == (3, [1])


# -- with logs -----------------------------------------------------------------------------------------------------

# In local time, three hours ahead of UTC: collective 4 was issued at 12:00:04 UTC.
WATCHDOG = (
    "[rank{rank}]:[E921 15:10:04.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600000 "
    "milliseconds before timing out.\n"
)


def logged(folder: Path, ranks: list[int], extra: dict[int, str]) -> None:
    for rank in FOUR:
        text = f"2026-09-21 15:00:01,000 INFO init done: rank={rank} world=4 backend=nccl\n" + extra.get(rank, "")
        (folder / f"rank_{rank}.log").write_text(text + (WATCHDOG.format(rank=rank) if rank in ranks else ""))


def test_the_recorder_is_put_on_the_logs_clock(tmp_path: Path) -> None:
    waiting = dump([*done(1, 2, 3), call(4, state="started")], FOUR)
    write(tmp_path, {0: waiting, 1: waiting, 2: dump(done(1, 2, 3), FOUR), 3: waiting})
    logged(tmp_path, [0, 1, 3], {})

    analysis = judged(tmp_path)

    stuck = next(event for event in analysis.events if event.signature == "flight_recorder/waiting")
    assert stuck.time_us == (START_NS // 1000) + 4_000_000 + 3 * 3600 * 1_000_000


def test_dumps_tell_who_was_absent_where_all_logs_show_a_timeout(tmp_path: Path) -> None:
    waiting = dump([*done(1, 2, 3), call(4, state="started")], FOUR)
    write(tmp_path, {0: waiting, 1: waiting, 2: dump(done(1, 2, 3), FOUR), 3: waiting})
    logged(tmp_path, [0, 1, 3], {2: "2026-09-21 15:00:05,000 INFO Saving model checkpoint to /ckpt\n"})

    analysis = judged(tmp_path)

    assert answer(analysis) == ("slow_rank", [2])
    assert analysis.collectives[0].absent == [2]


def test_a_failure_in_the_logs_comes_before_what_the_dumps_show(tmp_path: Path) -> None:
    waiting = dump([*done(1, 2, 3), call(4, state="started")], FOUR)
    write(tmp_path, {0: waiting, 1: waiting, 3: waiting})
    oom = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/home/user/project/train.py", line 113, in train_epoch\n'
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of "
        "79.10 GiB of which 1.00 GiB is free.\n"
    )
    logged(tmp_path, [0, 1, 3], {2: oom})

    assert answer(judged(tmp_path)) == ("cuda_oom", [2])


def test_a_run_that_finished_is_healthy_whatever_its_dumps_show(tmp_path: Path) -> None:
    write(tmp_path, {0: dump([*done(1), call(2, state="started")], [0, 1]), 1: dump(done(1), [0, 1])})
    (tmp_path / "train.log").write_text("step 1 loss 0.5\nTraining completed. Do not forget to share your model\n")

    assert judged(tmp_path).verdict.status == "no_failure"


def test_group_ranks_in_log_lines_become_global_through_the_dumps(tmp_path: Path) -> None:
    """[Rank 1] of a subgroup is not rank 1 of the run; a line without torch's own mark needs the members."""
    groups = {"7": ("tp", [2, 3])}
    write(tmp_path, {2: dump(done(1), FOUR, groups=groups), 3: dump(done(1), FOUR, groups=groups)})
    (tmp_path / "all.log").write_text(
        "[E921 12:10:04.000000000 ProcessGroupNCCL.cpp:632] [PG ID 2 PG GUID 7(tp) Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for "
        "600000 milliseconds before timing out.\n"
    )

    analysis = judged(tmp_path)

    assert [event.rank for event in analysis.events if event.kind == "timeout"] == [3]


def test_a_timeout_that_names_no_call_gets_it_from_the_dump() -> None:
    """gloo's lines say only that they waited; the dump of that rank knows for what."""
    analysis = judged(FIXTURES / "ddp-slow_eval-fr" / "logs")

    (state,) = analysis.collectives
    assert (state.operation, state.sequence, state.waiting, state.absent) == ("BROADCAST", 15, [0], [1])


def test_work_long_after_the_dump_shows_that_it_was_only_slow(tmp_path: Path) -> None:
    write(tmp_path, {0: dump([*done(1), call(2, state="started")], [0, 1]), 1: dump(done(1), [0, 1])})
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.log").write_text(
            f"2026-09-21 12:00:00,000 INFO init done: rank={rank} world=2 backend=nccl\n"
            "2026-09-21 12:00:01,000 INFO step 1 loss 0.5\n"
            "2026-09-21 12:05:00,000 INFO step 50 loss 0.4\n"
        )

    assert judged(tmp_path).verdict.status == "no_failure"
