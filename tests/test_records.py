"""Records: lines of one writer are put together, whatever stands between them, and nobody else's."""

from __future__ import annotations

from itertools import chain, zip_longest
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import events_of, told

from logforensics.buffer import LogBuffer
from logforensics.model import Event
from logforensics.prefixes import peel
from logforensics.records import (
    Frame,
    Traceback,
    assemble_tracebacks,
    following,
    looks_like_exception,
    preceding,
    same_writer,
)

HEADER = "Traceback (most recent call last):"
CONTEXT = ["", "During handling of the above exception, another exception occurred:", ""]
CAUSE = ["", "The above exception was the direct cause of the following exception:", ""]


def traceback(exception: str, line: int = 7, path: str = "/work/train.py", header: str = HEADER) -> list[str]:
    return [
        header,
        '  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl',
        "    return forward_call(*args, **kwargs)",
        f'  File "{path}", line {line}, in step',
        "    loss = model(batch)",
        exception,
    ]


def marked(mark: str, lines: list[str]) -> list[str]:
    return [mark + line for line in lines]


def interleaved(*writers: list[str]) -> list[str]:
    """Return the lines of several writers, one of each in turn."""
    return [line for line in chain(*zip_longest(*writers)) if line is not None]


def raised(folder: Path, lines: list[str]) -> list[Event]:
    """Return the events of exceptions that a traceback ended in, in the order of their lines."""
    events = events_of(folder, {"run.log": "\n".join(lines) + "\n"})
    return sorted((event for event in events if event.fields.get("raised")), key=lambda event: event.line)


def assembled(folder: Path, lines: list[str]) -> list[Traceback]:
    path = folder / "log"
    path.write_text("\n".join(lines) + "\n")
    with LogBuffer(path) as buffer:
        headers, place = [], buffer.data.find(HEADER.encode())
        while place >= 0:
            headers.append(place)
            place = buffer.data.find(HEADER.encode(), place + 1)
        return assemble_tracebacks(buffer, headers)


# --- one traceback --------------------------------------------------------------------------------------------


def test_a_traceback_is_the_event_of_its_last_line_and_knows_its_place_in_the_code(tmp_path: Path):
    (event,) = raised(tmp_path, ["up", *traceback("ValueError: bad sample 7", line=42), "", "down"])

    assert event.message == "ValueError: bad sample 7"
    assert event.line == event.end_line == 7
    assert event.fields["where"] == "/work/train.py:42 in step"
    assert event.fields["traceback_offset"] == len("up\n")


def test_the_frames_are_those_that_python_printed(tmp_path: Path):
    (block,) = assembled(tmp_path, traceback("ValueError: bad"))

    assert block.frames == [
        Frame("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1773, "_call_impl"),
        Frame("/work/train.py", 7, "step"),
    ]
    assert block.frames[1].text == 'File "/work/train.py", line 7, in step'


def test_without_a_frame_of_the_users_there_is_no_place():
    library = Frame("/opt/venv/lib/python3.11/site-packages/torch/x.py", 3, "f")

    assert Traceback(0, 0, 0, [library, Frame("<frozen runpy>", 1, "g")]).where is None
    assert Traceback(0, 0, 0, [Frame("/work/a.py", 1, "main"), library]).where == "/work/a.py:1 in main"


@pytest.mark.parametrize("extra", [
    ["    ~~~~~^^^^^^^"],
    ["  [Previous line repeated 987 more times]"],
    ["    x = \\", "        y"],
    [""],
    ["  File \"<string>\", line 1, in <module>"],
])  # fmt: skip
def test_what_python_prints_between_frames_and_exception_belongs_to_it(tmp_path: Path, extra: list[str]):
    lines = traceback("ValueError: bad")

    (event,) = raised(tmp_path, [*lines[:-1], *extra, lines[-1]])
    assert event.fields["where"] == "/work/train.py:7 in step"


def test_a_message_of_several_lines_ends_where_the_next_record_begins(tmp_path: Path):
    lines = [*traceback("ValueError: several things:"), "first thing", "second thing", "", "step 4 loss 0.3"]
    (event,) = raised(tmp_path, lines)

    assert (event.line, event.end_line) == (6, 8)


@pytest.mark.parametrize(
    "exception", ["AssertionError", "KeyError: 'weight'", "a.b.errors.Oops: x", "SystemExit: 1", "Exception"]
)
def test_exceptions_of_every_shape_end_a_traceback(tmp_path: Path, exception: str):
    (block,) = assembled(tmp_path, traceback(exception))

    assert block.exception_start == sum(len(line) + 1 for line in traceback(exception)[:-1])


@pytest.mark.parametrize(("line", "is_one"), [
    ("ValueError: bad", True), ("ValueError", True), ("torch.cuda.OutOfMemoryError: x", True), ("f.<locals>.Oops: x", True),
    ("Oops:", True), ("loss.backward()", False), ("INFO: up", False), ("step: 3", False), ("srun: error: x", False),
    ("x = 3", False), ("", False), ("two words", False), ("3: x", False),
])  # fmt: skip
def test_what_can_be_a_tracebacks_last_line(line: str, is_one: bool):
    assert looks_like_exception(line) is is_one


def test_a_traceback_that_was_cut_off_is_no_event(tmp_path: Path):
    assert raised(tmp_path, traceback("x")[:-1]) == []


def test_a_cut_traceback_does_not_take_the_next_ones_exception(tmp_path: Path):
    """The rank was killed while printing; another process writes on."""
    found = raised(
        tmp_path, marked("[rank0]: ", traceback("x")[:-1]) + marked("[rank1]: ", traceback("ValueError: one"))
    )

    assert [(event.rank, event.message) for event in found] == [(1, "ValueError: one")]


@pytest.mark.parametrize("glued", ["step 12 loss 0.3", " 60%|###### | 3/5 [00:00<00:00, 4.9it/s]"])
@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_a_traceback_glued_to_anothers_line_is_read(tmp_path: Path, glued: str, mark: str):
    lines = marked(mark, traceback("ValueError: bad"))
    (event,) = raised(tmp_path, [glued + lines[0], *lines[1:]])

    assert event.rank == (1 if mark else None)
    assert event.fields["where"] == "/work/train.py:7 in step"


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("mark", [
    "", "[rank1]: ", "[default1]:", "[default1]:[rank1]: ", " 1: ", "[1,1]<stderr>:", "node1: ", "node1: [rank1]: ",
    "(RayTrainWorker pid=1234, ip=10.0.0.7) ", "[pod/train-worker-1/pytorch] ", "2026-11-30T07:00:00.669794202Z stderr F ",
    "2026-11-30T07:00:00.669794202Z ", "2026-11-30T07:00:00.1234567Z ", "Nov 30 07:00:00 node1 torchrun[812]: ",
    "\x1b[31m",
])  # fmt: skip
def test_a_traceback_is_read_behind_every_carrier(tmp_path: Path, mark: str, end: str):
    (event,) = raised(tmp_path, [line + end.strip("\n") for line in marked(mark, traceback("ValueError: bad"))])

    assert event.signature == "python/uncaught-exception"
    assert event.fields["where"] == "/work/train.py:7 in step"


# --- chains ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "kind"), [(CONTEXT, "context"), (CAUSE, "cause")])
@pytest.mark.parametrize("mark", ["", "[rank1]: ", "3: "])
def test_chained_tracebacks_are_two_events_and_the_first_says_how_the_second_followed(
    tmp_path: Path, sentence: list[str], kind: str, mark: str
):
    lines = [*traceback("KeyError: 'weight'", line=3), *sentence, *traceback("RuntimeError: cannot load", line=9)]
    first, second = raised(tmp_path, marked(mark, lines))

    assert (first.message, first.fields.get("chained")) == ("KeyError: 'weight'", kind)
    assert (second.message, second.fields.get("chained")) == ("RuntimeError: cannot load", None)
    assert (first.fields["where"], second.fields["where"]) == ("/work/train.py:3 in step", "/work/train.py:9 in step")


def test_a_chain_of_three(tmp_path: Path):
    lines = [*traceback("KeyError: 'a'"), *CONTEXT, *traceback("OSError: b"), *CAUSE, *traceback("RuntimeError: c")]

    assert [event.fields.get("chained") for event in raised(tmp_path, lines)] == ["context", "cause", None]


def test_two_tracebacks_one_after_the_other_are_no_chain(tmp_path: Path):
    found = raised(tmp_path, [*traceback("ValueError: a"), "", *traceback("ValueError: b")])

    assert [(event.message, event.fields.get("chained")) for event in found] == [
        ("ValueError: a", None), ("ValueError: b", None),
    ]  # fmt: skip


# --- what other processes send home ---------------------------------------------------------------------------

RERAISED = [
    HEADER,
    '  File "/work/train.py", line 88, in main',
    "    for batch in loader:",
    '  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 708, in __next__',
    "    data = self._next_data()",
    '  File "/opt/venv/lib/python3.11/site-packages/torch/_utils.py", line 769, in reraise',
    "    raise exception",
    "ValueError: Caught ValueError in DataLoader worker process 0.",
    "Original Traceback (most recent call last):",
    '  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop',
    "    data = fetcher.fetch(index)",
    '  File "/work/data.py", line 12, in __getitem__',
    '    raise ValueError("corrupt sample")',
    "ValueError: corrupt sample",
    "",
]


@pytest.mark.parametrize("mark", ["", "[rank1]: "])
def test_the_original_traceback_of_a_dataloader_worker_is_nested_in_the_one_that_was_raised(tmp_path: Path, mark: str):
    outer, inner = raised(tmp_path, marked(mark, RERAISED))

    assert outer.signature == "dataloader/worker-exception"
    assert (outer.fields.get("nested"), inner.fields.get("nested")) == (None, True)
    assert (outer.fields["where"], inner.fields["where"]) == (
        "/work/train.py:88 in main",
        "/work/data.py:12 in __getitem__",
    )
    assert (outer.fields["activity"], inner.fields["activity"]) == ("data_loading", "data_loading")


SPAWNED = [
    HEADER,
    '  File "/work/train.py", line 99, in <module>',
    "    mp.spawn(main, nprocs=2)",
    '  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 215, in join',
    "    raise ProcessRaisedException(msg, error_index, failed_process.pid)",
    "torch.multiprocessing.spawn.ProcessRaisedException: ",
    "",
    "-- Process 1 terminated with the following error:",
    HEADER,
    '  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap',
    "    fn(i, *args)",
    '  File "/work/train.py", line 55, in main',
    "    step()",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x33 and 32x64)",
    "",
]


def test_the_error_of_a_spawned_process_is_its_own_event(tmp_path: Path):
    events = told(events_of(tmp_path, "\n".join(SPAWNED) + "\n"))

    assert [(event.signature, event.line) for event in events] == [
        ("python/spawn-child-raised", 6), ("python/spawn-child-error", 8), ("shapes/matmul-shapes", 14),
    ]  # fmt: skip
    assert events[1].local_rank == 1
    assert events[2].fields["where"] == "/work/train.py:55 in main"


# --- several writers in one file ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark", ["[rank{}]: ", "[default{}]:", "[default{0}]:[rank{0}]: ", " {}: ", "[1,{}]<stderr>:", "node{}: "]
)
def test_tracebacks_printed_into_each_other_are_kept_apart_by_their_marks(tmp_path: Path, mark: str):
    writers = [
        marked(mark.format(number), traceback(f"ValueError: of {number}", path=f"/work/rank{number}.py"))
        for number in range(3)
    ]
    found = raised(tmp_path, interleaved(*writers))

    assert [event.message for event in found] == ["ValueError: of 0", "ValueError: of 1", "ValueError: of 2"]
    assert [event.fields["where"] for event in found] == [f"/work/rank{number}.py:7 in step" for number in range(3)]


def test_without_marks_each_still_gets_its_own_exception(tmp_path: Path):
    found = raised(tmp_path, interleaved(traceback("ValueError: of 0"), traceback("KeyError: 'of 1'")))

    assert [event.message for event in found] == ["ValueError: of 0", "KeyError: 'of 1'"]


def test_a_loggers_lines_inside_a_traceback_are_another_threads(tmp_path: Path):
    lines = traceback("ValueError: bad")
    logged = ["2026-11-30 19:11:05,469 INFO train: step 3", "2026-11-30 19:11:06,469 INFO train: step 4"]
    (event,) = raised(tmp_path, interleaved(lines, logged))

    assert event.fields["where"] == "/work/train.py:7 in step"


def test_a_traceback_is_given_up_when_too_many_others_talk(tmp_path: Path):
    lines = traceback("ValueError: bad")
    logged = [f"2026-11-30 19:11:05,469 INFO train: step {number}" for number in range(40)]

    assert raised(tmp_path, [*lines[:3], *logged, *lines[3:]]) == []


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=24))
def test_any_interleaving_of_four_ranks_gives_four_exceptions(
    tmp_path_factory: pytest.TempPathFactory, turns: list[int]
):
    rest = [marked(f"[rank{n}]: ", traceback(f"ValueError: of {n}", path=f"/work/rank{n}.py")) for n in range(4)]
    lines = [rest[turn].pop(0) for turn in turns if rest[turn]]
    lines += interleaved(*rest)
    found = raised(tmp_path_factory.mktemp("mix"), lines)

    assert sorted((event.rank, event.message, event.fields["where"]) for event in found) == [
        (n, f"ValueError: of {n}", f"/work/rank{n}.py:7 in step") for n in range(4)
    ]


# --- neighbouring lines ---------------------------------------------------------------------------------------

TERMINATED = [
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA error: "
    "an illegal memory access was encountered",
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "",
    "Exception raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:43 (most recent call first):",
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f2 in /opt/venv/lib/libc10.so)",
    "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::finishedGPUExecutionInternal() const + 0x78",
]


@pytest.mark.parametrize("mark", ["", "[default1]:", " 1: "])
def test_a_crash_in_native_code_is_read_with_its_reason_and_without_its_frames(tmp_path: Path, mark: str):
    events = told(events_of(tmp_path, "\n".join(marked(mark, TERMINATED)) + "\n"))

    assert [event.line for event in events] == [1, 2]
    assert events[1].category == "illegal_memory_access"


def lines_of(folder: Path, lines: list[str]) -> LogBuffer:
    (folder / "log").write_text("\n".join(lines) + "\n")
    return LogBuffer(folder / "log")


MIXED = [
    "[rank0]: zero", "[rank1]: one", "  more of somebody", "[rank0]: zero again", "3: a task's",
    "[rank0]:[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:632] the next record", "[rank0]: too late",
]  # fmt: skip


def test_the_lines_that_follow_are_the_same_writers_up_to_its_next_record(tmp_path: Path):
    with lines_of(tmp_path, MIXED) as buffer:
        first = peel(MIXED[0])
        found = [peeled.text for _, _, peeled in following(buffer, len(MIXED[0]), first, 12)]

        # a C++ message has its mark on the first line only, so an unmarked line may be its continuation
        assert found == ["  more of somebody", "zero again"]
        assert [p.text for _, _, p in following(buffer, len(MIXED[0]), first, 1)] == ["  more of somebody"]


def test_the_lines_before_are_the_same_writers_nearest_first(tmp_path: Path):
    with lines_of(tmp_path, MIXED) as buffer:
        start = sum(len(line) + 1 for line in MIXED[:5])

        assert [peeled.text for peeled in preceding(buffer, start, peel("[rank0]: x"), 12)] == ["zero again", "zero"]


@pytest.mark.parametrize(("one", "other", "same"), [
    ("[rank0]: a", "[rank0]: b", True), ("[rank0]: a", "[rank1]: b", False), ("[rank0]: a", "b", False), ("a", "b", True),
    ("3: a", "3: b", True), ("3: a", "4: b", False), ("3: [rank0]: a", "3: b", False), ("[default0]:a", "[default0]:b", True),
    ("2026-11-30 19:11:05,469 a", "b", True),
])  # fmt: skip
def test_who_can_be_the_same_writer(one: str, other: str, same: bool):
    assert same_writer(peel(one), peel(other)) is same
