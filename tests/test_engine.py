"""The two engines report the same places, give the same analysis, and a cache of any kind changes nothing."""

from __future__ import annotations

import builtins
import json
import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import events_of, scanners

from logforensics import patterns
from logforensics.analysis import Analysis, analyze
from logforensics.engine import HyperscanEngine, PlainEngine, blocks, build_engine, scan_buffer
from logforensics.render.json_report import to_json
from logforensics.signatures import shipped_signatures

hyperscan = pytest.importorskip("hyperscan", reason="no Hyperscan for this machine: there is only one engine")

FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXTS = [b"disk full", b"full", b"RuntimeError: ", b"error", b"aa", b"\xc3\xa9", b"a\\.b", b"(x|y)*", b"]:["]
# One of each layout, strategy and launcher; hangs, crashes, kills, a healthy run.
DIVERSE = [
    "ddp-none_warnings-per_rank",
    "ddp-shape-restart",
    "ddp-slow_eval-processes-srun-4ranks",
    "ddp-uneven-2nodes",
    "fsdp1-full_shard-port_in_use-accelerate-combined-2nodes",
    "fsdp2-mismatch_op-tee-detail-fr",
    "fsdp2-none-processes-ray",
    "zero2-host_oom-deepspeed",
    "zero3_offload-none-kubectl-2nodes",
]


def fast(texts: list[bytes] = TEXTS, cache: Path | None = None) -> HyperscanEngine:
    return HyperscanEngine.build(texts, cache)


# --- the same hits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [
    b"", b"disk full\n", b"aaaa", b"disk disk full full", "é RuntimeError: é".encode(), b"a.b a\\.b (x|y)* xyxy", b"error\n" * 50,
    b"[rank0]:[E \x00disk full\xff\xfe", b"DISK FULL",
])  # fmt: skip
def test_both_engines_report_every_place_of_every_text(data: bytes):
    expected = sorted(
        (place + len(text) - 1, number)
        for number, text in enumerate(TEXTS)
        for place in range(len(data))
        if data.startswith(text, place)
    )

    assert sorted(fast().scan(data)) == expected
    assert PlainEngine(TEXTS).scan(data) == expected


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from([*TEXTS, b"disk ", b"a", b"\n", b" ", b"x", b"Error"]), max_size=30).map(b"".join),
    st.integers(1, 40),
)
def test_blocks_of_any_size_give_what_the_whole_gives(data: bytes, step: int):
    longest = max(len(line) for line in data.split(b"\n")) + 1
    cut = [
        (start + place, text)
        for start, block in blocks(data, len(data), step=max(step, longest))
        for place, text in PlainEngine(TEXTS).scan(block)
    ]

    assert cut == PlainEngine(TEXTS).scan(data)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([*TEXTS, b"disk ", b"\n", b"x"]), max_size=40).map(b"".join), st.integers(0, 60))
def test_both_engines_give_the_same_hits_from_any_offset_on(data: bytes, start: int):
    def hits(engine: Any) -> list[tuple[int, int]]:
        return sorted(hit for block in scan_buffer(engine, data, len(data), min(start, len(data))) for hit in block)

    assert hits(fast()) == hits(PlainEngine(TEXTS))


def test_a_line_longer_than_a_block_is_scanned_to_its_end():
    data = b"x" * 100 + b"\n" + b"disk full"

    assert [bytes(block) for _, block in blocks(data, len(data), step=40)] == [
        b"x" * 40, b"x" * 40, b"x" * 20 + b"\ndisk full",
    ]  # fmt: skip


def test_blocks_cover_a_memory_map_without_keeping_it(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"disk full\n" * 5000)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        done: list[int] = []
        hits = [hit for block in scan_buffer(fast(), data, len(data), progress=done.append) for hit in block]

        assert len(hits) == 10_000
        assert sum(done) == len(data)
    # closing the map would have failed if a block still held it


def test_a_clone_scans_for_the_same_texts():
    for engine in (fast(), PlainEngine(TEXTS)):
        assert engine.clone().scan(b"a disk full") == engine.scan(b"a disk full") != []


@pytest.mark.parametrize("name", DIVERSE)
def test_the_shipped_texts_are_found_alike_in_real_logs(name: str):
    fast_one, plain_one = scanners(), scanners(plain=True)
    for path in sorted((FIXTURES / name / "logs").rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            for quick, slow in (
                (fast_one.whole_engine, plain_one.whole_engine),
                (fast_one.window_engine, plain_one.window_engine),
            ):
                assert sorted(quick.scan(data)) == slow.scan(data), path


# --- the same analysis ----------------------------------------------------------------------------------------


def outcome(analysis: Analysis) -> tuple[str, list[tuple[Any, ...]]]:
    events = [tuple(row.values()) for row in analysis.timeline.to_dicts()]
    return json.dumps(to_json(analysis), sort_keys=True), events


@pytest.mark.parametrize("name", DIVERSE)
def test_both_engines_give_the_same_events_and_the_same_verdict(name: str, monkeypatch: pytest.MonkeyPatch):
    quick = outcome(analyze(FIXTURES / name / "logs", use_cache=False))
    monkeypatch.setenv("LOGFORENSICS_ENGINE", "plain")
    slow = outcome(analyze(FIXTURES / name / "logs", use_cache=False))

    assert slow == quick
    assert quick[1]


LINES = st.sampled_from([
    "RuntimeError: CUDA error: device-side assert triggered",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 7, in main',
    "ValueError: bad sample 7",
    "step 12 loss 0.31",
    " 60%|###### | 3/5 [00:00<00:00, 4.9it/s]",
    "Saving model checkpoint to /work/ckpt",
    "Signal 15 (SIGTERM) received by PID 4711",
    "Some NCCL operations have failed or timed out.",
    "",
    "nothing that anybody wants",
])  # fmt: skip
MARKS = st.sampled_from(
    ["", "[rank0]: ", "[rank1]: ", "3: ", "[default1]:", "2026-11-30 19:11:05,469 INFO ", "\x1b[31m"]
)
LOGS = st.lists(st.tuples(MARKS, LINES, st.sampled_from(["\n", "\n", "\r\n", "\r", ""])).map("".join), max_size=25).map(
    "".join
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LOGS)
def test_both_engines_give_the_same_events_on_any_log(tmp_path_factory: pytest.TempPathFactory, text: str):
    folder = tmp_path_factory.mktemp("any")
    log = "up\n" + text
    quick = [(e.signature, e.offset, e.rank, e.repeats, e.fields) for e in events_of(folder, log)]
    slow = [(e.signature, e.offset, e.rank, e.repeats, e.fields) for e in events_of(folder, log, plain=True)]

    assert slow == quick


# --- which engine, which cache --------------------------------------------------------------------------------


def test_hyperscan_is_used_where_it_is_and_not_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch):
    assert isinstance(build_engine(TEXTS, None), HyperscanEngine)
    assert isinstance(build_engine(TEXTS, None, plain=True), PlainEngine)
    monkeypatch.setenv("LOGFORENSICS_ENGINE", "plain")
    assert isinstance(build_engine(TEXTS, None), PlainEngine)


def test_a_machine_without_hyperscan_gets_the_plain_engine(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "hyperscan":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)

    assert isinstance(build_engine(TEXTS, None), PlainEngine)


def kept(cache: Path) -> Path:
    (path,) = cache.glob("scan-*.hsdb")
    return path


def test_what_was_compiled_once_is_loaded_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = fast(cache=tmp_path).scan(b"disk full")
    monkeypatch.setattr(hyperscan, "Database", None)

    assert fast(cache=tmp_path).scan(b"disk full") == first != []


@pytest.mark.parametrize("spoil", [
    lambda content: b"", lambda content: content[:40], lambda content: content[:-1],
    lambda content: content[:50] + b"\x00" + content[51:], lambda content: b"\x00" * 32 + content[32:],
], ids=["empty", "half", "shorter", "a byte", "the sum"])  # fmt: skip
def test_a_damaged_database_is_compiled_again_and_replaced(tmp_path: Path, spoil):
    expected = fast(cache=tmp_path).scan(b"disk full")
    whole = kept(tmp_path).read_bytes()
    kept(tmp_path).write_bytes(spoil(whole))

    assert fast(cache=tmp_path).scan(b"disk full") == expected
    assert len(kept(tmp_path).read_bytes()) == len(whole)


def test_a_database_of_other_texts_is_not_taken(tmp_path: Path):
    fast(cache=tmp_path)

    assert fast([b"other"], tmp_path).scan(b"disk full, other") == [(15, 0)]
    assert len(list(tmp_path.glob("scan-*.hsdb"))) == 2


def test_a_database_under_a_wrong_name_is_harmless(tmp_path: Path):
    """A file that is whole but holds something else than Hyperscan's: as after a change of its version."""
    import hashlib

    fast(cache=tmp_path)
    kept(tmp_path).write_bytes(hashlib.sha256(b"stale").digest() + b"stale")

    assert fast(cache=tmp_path).scan(b"disk full") != []


@pytest.fixture
def no_folder(tmp_path: Path) -> Path:
    """A cache folder that cannot be made, whoever runs the tests: its parent is a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "cache"


def test_a_cache_folder_that_cannot_be_written_is_no_failure(no_folder: Path):
    assert fast(cache=no_folder).scan(b"disk full") != []


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as a new process does: nothing compiled, nothing loaded."""
    for name in ("_ready", "_stored"):
        monkeypatch.setattr(patterns, name, {})
    monkeypatch.setattr(patterns, "_new", set())


def analyzed(cache: Path | None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[tuple[Any, ...]]]:
    monkeypatch.setenv("LOGFORENSICS_CACHE", str(cache))
    return outcome(analyze(FIXTURES / "ddp-shape-restart" / "logs", use_cache=cache is not None))


@pytest.mark.usefixtures("forgetful")
def test_the_analysis_is_the_same_without_a_cache_with_a_new_one_an_old_one_and_a_spoilt_one(
    tmp_path: Path, no_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = tmp_path / "cache"
    # the dialects are read once for the whole test: what is cached of them has its tests in test_signatures.py
    monkeypatch.setattr("logforensics.signatures.shipped_signatures", lambda cache=None: shipped_signatures())
    plain = analyzed(None, monkeypatch)

    assert not cache.exists()
    assert analyzed(cache, monkeypatch) == plain
    assert {path.name.split("-")[0] for path in cache.iterdir()} == {"scan", "patterns"}
    patterns._ready.clear()
    assert analyzed(cache, monkeypatch) == plain
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    patterns._ready.clear()
    patterns._stored.clear()
    assert analyzed(cache, monkeypatch) == plain
    assert analyzed(no_folder, monkeypatch) == plain


@pytest.mark.usefixtures("forgetful")
def test_compiled_expressions_are_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    patterns.compiled(r"disk\sfull")
    patterns.remember_in(tmp_path)
    patterns._ready.clear()
    patterns._stored.clear()
    patterns.remember_from(tmp_path)
    assert r"disk\sfull" in patterns._stored

    assert patterns.compiled(r"disk\sfull").search("a disk full")
    patterns._ready.clear()
    patterns._stored[r"disk\sfull"] = b"no pickle"
    assert patterns.compiled(r"disk\sfull").search("a disk full")
