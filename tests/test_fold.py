"""Floods: of thousands of like lines the first ones and the last are read, all are counted, and memory stays flat."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import events_of, scanners, told

from logforensics.buffer import LogBuffer
from logforensics.engine import PlainEngine, scan_buffer
from logforensics.fold import KEPT, Fold, HitLine, group_by_line, line_shape, writer_key

ASSERT = "RuntimeError: CUDA error: device-side assert triggered"


def folded(folder: Path, text: str, texts: list[str]) -> list[HitLine]:
    path = folder / "log"
    path.write_text(text)
    with LogBuffer(path) as buffer:
        fold = Fold(buffer)
        for hits in scan_buffer(PlainEngine([text.encode() for text in texts]), buffer.data, buffer.size):
            fold.add(hits)
        return fold.lines()


# --- whole events ---------------------------------------------------------------------------------------------


def test_ten_thousand_errors_of_three_ranks_are_counted_to_the_last(tmp_path: Path):
    counts = {0: 5000, 1: 3333, 2: 1667}
    ranks = [rank for rank, count in counts.items() for _ in range(count)]
    ranks.sort(key=lambda rank: (rank * 7919) % 3)  # in three runs of one rank each
    log = "".join(f"[rank{rank}]: {ASSERT}\n" for rank in ranks)
    events = told(events_of(tmp_path, log))

    assert {event.signature for event in events} == {"cuda/device-assert"}
    assert Counter({event.rank: 0 for event in events}).keys() == counts.keys()
    for rank, count in counts.items():
        own = sorted((event for event in events if event.rank == rank), key=lambda event: event.line)
        lines = [number for number, writer in enumerate(ranks, 1) if writer == rank]
        assert sum(event.repeats for event in own) == count
        assert (own[0].line, own[-1].line) == (lines[0], lines[-1])
        assert len(own) == KEPT + 1
        assert [event.repeats for event in own[:-1]] == [1] * KEPT


@pytest.mark.parametrize(
    "mark", ["[rank{}]: ", "[default{}]:[rank{}]: ", "{}: ", "[1,{}]<stderr>:", "node{}: ", "[rank {}] "]
)
def test_interleaved_writers_keep_their_own_counts(tmp_path: Path, mark: str):
    log = "".join(mark.format(*[number % 3] * 2) + ASSERT + "\n" for number in range(900))
    events = told(events_of(tmp_path, log))

    assert sum(event.repeats for event in events) == 900
    assert len(events) == 3 * (KEPT + 1)
    assert {event.line for event in events if event.repeats > 1} == {898, 899, 900}
    assert {event.repeats for event in events} == {1, 300 - KEPT}


def test_lines_that_differ_in_numbers_only_are_one_flood(tmp_path: Path):
    log = "".join(
        f"slurmstepd: error: Detected {n} oom_kill event in StepId={n * 7}.batch. Some of\n" for n in range(1, 2001)
    )
    (name,) = {event.signature for event in told(events_of(tmp_path, log))}
    events = told(events_of(tmp_path, log))

    assert name.startswith("slurm/")
    assert sum(event.repeats for event in events) == 2000
    assert len(events) == KEPT + 1


def test_a_lone_error_inside_a_flood_is_not_folded_into_it(tmp_path: Path):
    flood = [f"[rank1]: {ASSERT}"] * 5000
    flood[2500] = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
    flood[2600] = "[rank2]: " + ASSERT
    events = told(events_of(tmp_path, "\n".join(flood) + "\n"))

    assert [event.line for event in events if event.category == "cuda_oom"] == [2501]
    assert [event.line for event in events if event.rank == 2] == [2601]
    assert sum(event.repeats for event in events) == 5000


def test_few_like_lines_stay_as_they_are(tmp_path: Path):
    events = told(events_of(tmp_path, f"[rank0]: {ASSERT}\n" * KEPT))

    assert [event.repeats for event in events] == [1] * KEPT


def test_a_flood_across_files_is_counted_in_each(tmp_path: Path):
    files = {f"rank{rank}.log": f"{ASSERT}\n" * (100 + rank) for rank in range(3)}
    events = told(events_of(tmp_path, files))

    for rank in range(3):
        assert sum(event.repeats for event in events if event.rank == rank) == 100 + rank


# --- lines ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "[rank0]: ", "[rank1]: ", "7: "]), st.sampled_from(["gone 1", "gone 22", "lost", "x"])
        ),
        max_size=150,
    )
)
def test_every_hit_line_is_counted_once_whatever_the_mix(tmp_path_factory: pytest.TempPathFactory, lines):
    text = "".join(mark + word + "\n" for mark, word in lines)
    kept = folded(tmp_path_factory.mktemp("mix"), text or "\n", ["gone", "lost"])

    assert sum(line.repeats for line in kept) == sum(word != "x" for _, word in lines)
    assert [line.start for line in kept] == sorted({line.start for line in kept})


def test_memory_does_not_grow_with_the_number_of_different_lines(tmp_path: Path):
    """Damaged or hostile: each line has a shape of its own."""
    letters = "abcdefghijklmnopqrst"
    words = [a + b + c for a in letters for b in letters for c in letters]
    words += [word.upper() for word in words]
    kept = folded(tmp_path, "".join(f"disk full: {word}\n" for word in words), ["disk full"])

    assert len(words) == 16_000
    assert len(kept) < 5_000
    assert sum(line.repeats for line in kept) == 16_000


def test_texts_of_one_line_come_together(tmp_path: Path):
    (tmp_path / "log").write_text("x\ndisk full, volume gone\nvolume gone")
    with LogBuffer(tmp_path / "log") as buffer:
        engine = PlainEngine([b"disk full", b"volume", b"gone"])
        (hits,) = scan_buffer(engine, buffer.data, buffer.size)
        found = list(group_by_line(buffer, hits))

    assert [(line.start, line.end, line.texts) for line in found] == [(2, 24, {0, 1, 2}), (25, 36, {1, 2})]


@pytest.mark.parametrize(("one", "other"), [
    (b"[rank0]: x", b"[rank1]: x"), (b"[default0]:x", b"[default1]:x"), (b" 3: x", b" 4: x"), (b"[1,3]<stderr>:x", b"[1,4]<stderr>:x"),
    (b"[rank 0] x", b"[rank 1] x"), (b"Rank 3: x", b"Rank 4: x"), (b"node-1:20001:20041 [0] NCCL", b"node-1:20002:20041 [0] NCCL"),
    (b"(Worker pid=12) x", b"(Worker pid=13) x"), (b"worker local_rank=1 x rank: 3", b"worker local_rank=1 x rank: 4"),
])  # fmt: skip
def test_writers_are_told_apart(one: bytes, other: bytes):
    assert writer_key(one) != writer_key(other)


def test_one_writers_lines_have_one_key_and_one_shape():
    lines = [b"[rank3]: step 17 took 3.5 s", b"[rank3]: step 1800 took 12.75 s"]

    assert len({writer_key(line) for line in lines}) == len({line_shape(line) for line in lines}) == 1


def test_the_scanners_of_the_program_take_a_large_flood_in_one_reading(tmp_path: Path):
    """The reading counts every line that was hit, folded or not."""
    from logforensics.reader import read_source
    from logforensics.sources import collect

    (tmp_path / "run.log").write_text(f"[rank0]: {ASSERT}\nstep 3 loss 0.2\n" * 4000)
    with collect([tmp_path]) as sources:
        reading = read_source(sources.found[0], scanners())

    assert reading.hit_lines == 4000
    assert len(reading.events) < 200
