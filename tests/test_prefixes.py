"""Prefixes: what carriers and loggers put in front of a line comes off, is kept, and takes nothing along."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforensics.model import FIELDS, STREAMS
from logforensics.prefixes import LAYERS, Prefix, clean, known_prefixes, peel, segments, typed

STAMP = "2026-11-30 19:11:05,469 "
SAMPLES = [(prefix, sample) for prefix in known_prefixes() for sample in prefix.samples]


def shown(item: tuple[Prefix, dict[str, Any]]) -> str:
    return item[1]["line"].strip() if isinstance(item, tuple) else str(item)


def fields(line: str) -> dict[str, Any]:
    return peel(line).fields


# --- each of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", SAMPLES, ids=shown)
@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: boom",
        "Traceback (most recent call last):",
        "[Rank 2] Watchdog caught collective operation timeout",
        "CUDA error: an illegal memory access was encountered",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ],
)
def test_a_prefix_comes_off_and_leaves_the_message_alone(item, message: str):
    prefix, sample = item
    before = STAMP if prefix.only_after_logger else ""
    peeled = peel(before + sample["line"] + message)

    assert peeled.text == message
    assert peeled.fields == sample.get("fields", {})
    assert peeled.stream == prefix.stream
    assert (peeled.rank_mark, peeled.logger_mark) == (prefix.layer == "rank", prefix.layer == "logger")
    if prefix.layer == "carrier":
        assert dict(peeled.carrier) == sample.get("fields", {})


@pytest.mark.parametrize("item", [item for item in SAMPLES if item[0].layer != "logger"], ids=shown)
def test_a_frame_of_a_traceback_stays_indented_behind_a_carrier(item):
    _, sample = item

    for line in ('  File "/work/train.py", line 7, in main', "    loss.backward()"):
        assert peel(sample["line"] + line).text in (line, line[1:])


@pytest.mark.parametrize("item", [i for i in SAMPLES if "time" in i[0].captures], ids=shown)
def test_the_time_of_a_prefix_is_kept_as_it_was_written(item):
    prefix, sample = item
    peeled = peel(sample["line"] + "x")

    if "[2025" in sample["line"] or prefix.id != "nccl":
        assert peeled.stamp is not None
        assert peeled.stamp[0] == prefix.id
        assert peeled.stamp[1] in sample["line"]
    else:
        assert peeled.stamp is None  # NCCL_DEBUG lines have a time only where it was asked for


@pytest.mark.parametrize("prefix", known_prefixes(), ids=lambda prefix: prefix.id)
def test_a_prefix_speaks_the_vocabulary(prefix: Prefix):
    assert prefix.layer in LAYERS
    assert set(prefix.captures) <= set(FIELDS)
    assert prefix.stream is None or prefix.stream in STREAMS
    assert prefix.samples


def test_no_two_prefixes_have_one_id():
    assert len({prefix.id for prefix in known_prefixes()}) == len(known_prefixes())


# --- several --------------------------------------------------------------------------------------------------

STACKS = [
    ("3: [rank5]: ValueError: x", "ValueError: x", {"task": 3, "rank": 5}),
    ("[1,3]<stderr>:[rank3]: ValueError: x", "ValueError: x", {"task": 3, "rank": 3}),
    ("[default1]:[rank9]:[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog",
     "[Rank 1] Watchdog", {"role_name": "default", "local_rank": 1, "rank": 9, "severity": "E"}),
    ("node1: (RayTrainWorker pid=12, ip=10.0.0.7) [rank1]: ValueError: x", "ValueError: x",
     {"host": "node1", "name": "RayTrainWorker", "pid": 12, "rank": 1}),
    ("[pod/train-0/pytorch] 2026-11-30T07:00:00.669794202Z stderr F [rank0]: Traceback (most recent call last):",
     "Traceback (most recent call last):", {"host": "train-0", "rank": 0}),
    ("[2026-11-30 19:11:05,469] [INFO] [logging.py:96:log_dist] [Rank 0] step=250", "[Rank 0] step=250",
     {"severity": "INFO"}),
    ("2026-11-30 19:11:05,469 ERROR train: RuntimeError: boom", "RuntimeError: boom", {"severity": "ERROR"}),
    ("2026-11-30 19:11:05,469 - train - ERROR - RuntimeError: boom", "RuntimeError: boom", {"severity": "ERROR"}),
    ("2026-11-30 19:11:05 | ERROR    | train:main:88 - boom", "train:main:88 - boom", {"severity": "ERROR"}),
    ("[INFO|trainer.py:3503] 2024-08-12 03:10:02,101 >> Saving model", "Saving model", {"severity": "INFO"}),
    (" 0: worker-1: [rank4]: node-3:1203:1227 [0] NCCL INFO comm 0x5 rank 4", "comm 0x5 rank 4",
     {"task": 0, "host": "worker-1", "rank": 4, "pid": 1203, "tid": 1227, "device": 0, "severity": "INFO"}),
    ("Nov 30 07:00:00 node1 kernel: [12345.678901] NVRM: Xid", "NVRM: Xid", {"host": "node1"}),
    ("2026-11-30T07:00:00.123456+01:00 node1 kernel: [12345.678901] NVRM: Xid", "NVRM: Xid", {"host": "node1"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "text", "found"), STACKS, ids=[line for line, _, _ in STACKS])
def test_stacked_prefixes_come_off_outermost_first(line: str, text: str, found: dict[str, Any]):
    assert peel(line).text == text
    assert peel(line).fields == found


def test_torchs_own_mark_wins_over_what_a_logger_or_a_carrier_calls_rank():
    assert fields("[rank 2] [rank5]: x")["rank"] == 5
    assert fields("[rank5]: [rank 2] x")["rank"] == 5
    assert fields("rank3: [rank 2] x")["rank"] == 3  # of two that are no more than names, the outer one


def test_the_outermost_time_is_the_lines_time():
    peeled = peel("2026-11-30T07:00:00.1234567Z 2026-11-30 05:00:00,123 INFO x")

    assert peeled.stamp == ("github-actions", "2026-11-30T07:00:00.1234567Z")


def test_the_carrier_tells_the_writers_apart():
    assert peel("3: x").carrier == peel("3: [rank9]: y").carrier != peel("4: x").carrier
    assert peel("[rank9]: y").carrier == ()


def test_the_stream_that_a_carrier_implies_is_told():
    assert peel("[12345.678901] NVRM: Xid").stream == "kernel"
    assert peel("Nov 30 07:00:00 node1 slurmd[812]: x").stream == "scheduler"
    assert peel("node-3:1203:1227 [0] NCCL INFO x").stream == "nccl"
    assert peel("3: x").stream is None


def test_what_only_looks_like_a_loggers_name_can_also_be_the_message():
    peeled = peel(STAMP + "INFO Epoch: [0][383/1736] Loss 0.6")

    assert peeled.text == "[0][383/1736] Loss 0.6"
    assert peeled.readings == [peeled.text, "Epoch: " + peeled.text, "INFO Epoch: " + peeled.text]
    assert peel("[rank3]: Epoch: x").readings == ["Epoch: x"]


NOT_PREFIXES = [
    "ValueError: 3: x",
    "loss: 0.3",
    "localhost: the name holds no digit",
    "step5: 0.3",
    "cuda0: error",
    "gpu0: 40 C",
    "mat1 and mat2 shapes cannot be multiplied",
    "(most recent call last)",
    "[Errno 28] No space left on device",
    "[Rank 2] Watchdog caught collective operation timeout",
    "RuntimeError: [rank3]: boom",
    "train: not behind a logger, so no name",
    "INFO behind no time",
    "[1000000.5] seven digits",
    "worker1: ValueError: x",
    "",
    " ",
]


@pytest.mark.parametrize("line", NOT_PREFIXES)
def test_what_only_resembles_a_prefix_stays(line: str):
    assert peel(line).text == line
    assert peel(line).fields == {}


@pytest.mark.parametrize(
    "name", ["RuntimeError", "torch.cuda.OutOfMemoryError", "KeyboardInterrupt", "a.b.FooException"]
)
def test_an_exceptions_class_is_no_loggers_name(name: str):
    assert peel(f"{STAMP}ERROR {name}: boom").text == f"{name}: boom"
    assert peel(f"{STAMP}ERROR train: {name}: boom").text == f"{name}: boom"


def test_a_line_of_nothing_but_prefixes_ends():
    assert peel("[rank3]: " * 1000).text.startswith("[rank3]: ")


@given(
    st.lists(st.sampled_from([s["line"] for _, s in SAMPLES] + ["RuntimeError: ", "x", " ", "[", "{", "\t", "é", "3"]))
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_what_is_left_is_always_the_lines_end_and_nothing_is_invented(parts: list[str]):
    line = "".join(parts)
    peeled = peel(line)

    assert line.endswith(peeled.text)
    assert all(line.endswith(reading) and reading.endswith(peeled.text) for reading in peeled.readings)
    assert all(isinstance(value, FIELDS[name]) for name, value in peeled.fields.items())
    for value in peeled.fields.values():
        assert str(value) in line or str(value).zfill(2) in line


@pytest.mark.parametrize(("name", "raw", "value"), [
    ("rank", "3", 3), ("rank", "03", 3), ("rank", "x", None), ("pid", "", None), ("percent", "48", 48.0),
    ("elapsed_s", "1.5", 1.5), ("elapsed_s", "soon", None), ("exc", "ValueError", "ValueError"), ("step", "9" * 30, None),
])  # fmt: skip
def test_a_captured_text_gets_its_fields_type(name: str, raw: str, value: Any):
    assert typed(name, raw) == value


# --- cleaning and splitting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "text"), [
    ("\x1b[31mRuntimeError\x1b[0m: boom", "RuntimeError: boom"),
    ("\x1b[1;38;5;196mx\x1b[m", "x"),
    ("\x1b[2K\x1b[1Gx", "x"),
    ("\x1b[?25lx\x1b[?25h", "x"),
    ("\x1b]0;a window's title\x07x", "x"),
    ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("Run\x00time\x00Error", "RuntimeError"),
    ("x\r", "x"),
    ("x\r\n", "x"),
    ("\x1b[31", "\x1b[31"),  # cut in the middle: nothing that can be told
    ("a\rb", "a\rb"),
])  # fmt: skip
def test_colour_cursor_nul_and_line_ends_are_removed(raw: str, text: str):
    assert clean(raw) == text


@pytest.mark.parametrize(("line", "parts"), [
    ("x", ["x"]),
    ("", [""]),
    (" 10%|#  | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]", [" 10%|#  | 1/10 [00:01<00:09]", " 20%|## | 2/10 [00:02<00:08]"]),
    ("\r\rx\r", ["x"]),
    (" 60%|###### | 3/5 [00:00<00:00, 4.9it/s][rank1]: Traceback (most recent call last):",
     [" 60%|###### | 3/5 [00:00<00:00, 4.9it/s]", "[rank1]: Traceback (most recent call last):"]),
    (" 60%|###### | 3/5 [00:00<00:00, 4.9it/s]Traceback (most recent call last):",
     [" 60%|###### | 3/5 [00:00<00:00, 4.9it/s]", "Traceback (most recent call last):"]),
    ("12.5kit [00:03, 3.9kit/s]Done", ["12.5kit [00:03, 3.9kit/s]", "Done"]),
    ("step 12 loss 0.3[rank1]: RuntimeError: boom", ["step 12 loss 0.3", "[rank1]: RuntimeError: boom"]),
    ("step 12 loss 0.3[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] x",
     ["step 12 loss 0.3", "[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] x"]),
    ("[default0]:[rank1]: RuntimeError: boom", ["[default0]:[rank1]: RuntimeError: boom"]),
    ("Original Traceback (most recent call last):", ["Original Traceback (most recent call last):"]),
    ("took 3 s [00:03] to load", ["took 3 s [00:03] to load"]),
])  # fmt: skip
def test_one_physical_line_is_split_where_another_was_meant(line: str, parts: list[str]):
    assert segments(line) == parts


@given(
    st.lists(
        st.sampled_from(
            [
                " 60%|###### | 3/5 [00:00<00:00, 4.9it/s]",
                "[rank1]: ",
                "\r",
                " ",
                "Traceback (most recent call last):",
                "x",
                "12kit [00:03, 3kit/s]",
                "boom",
                ",",
                "[",
                "]",
            ]
        )
    )
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_splitting_loses_nothing_but_blanks_and_carriage_returns(parts: list[str]):
    line = "".join(parts)
    split = segments(line)

    assert split
    assert "".join("".join(split).split()) == "".join(line.split())
