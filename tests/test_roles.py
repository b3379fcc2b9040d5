"""Roles, in both directions: a symptom never outranks a cause, and what is no failure never makes one.

Each signature's own samples are put into a run of two ranks whose story is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from inputs import ROOT

from logforensics import Analysis, analyze
from logforensics.prefixes import clean, peel
from logforensics.records import looks_like_exception
from logforensics.signatures import Signature, load_folder

SIGNATURES = load_folder(ROOT / "parsers", check=False)
# What the operating system and the scheduler write stands in a file of its own.
_ELSEWHERE = {"kernel": "dmesg.log", "scheduler": "slurm.out"}
_MARK = regex.compile(r"\[rank\d+\]:")
_CLOCK = regex.compile(r"\d\d:\d\d:\d\d")

OUT_OF_MEMORY = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/work/train.py", line 12, in main
[rank1]:     loss.backward()
[rank1]:   File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 581, in backward
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB \
of which 1.00 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch \
but unallocated.
"""

WATCHDOG = """\
[rank1]:[E1130 19:21:05.106390857 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds before \
timing out.
[rank1]:[E1130 19:21:05.206390857 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure detected by \
watchdog at work sequence id: 6 PG status: last enqueued work: 6, last completed work: 5
"""
# These say that something ended, not what; silence may tell more.
_VAGUE = {"unknown_exit", "unknown_timeout"}


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory) -> Iterator[None]:
    """Keep the compiled scan database between the runs of this module."""
    before = os.environ.get("LOGFORENSICS_CACHE")
    os.environ["LOGFORENSICS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["LOGFORENSICS_CACHE"]
    else:
        os.environ["LOGFORENSICS_CACHE"] = before


def opening(rank: int) -> str:
    init = f"init done: rank={rank} world=2 backend=nccl torch=2.8.0+cu128 pid={4100 + rank}"
    return f"2026-11-30 19:10:59,000 {init}\n" + steps(1, 6)


def steps(first: int, last: int) -> str:
    return "".join(
        f"2026-11-30 19:11:{step:02d},000 INFO train: step {step} loss 2.{step}\n" for step in range(first, last)
    )


def as_written_by_rank_0(signature: Signature, line: str) -> str:
    """The sample as a record of rank 0's log; what is raised gets a traceback above it."""
    text = _MARK.sub("[rank0]:", line)
    peeled = peel(clean(text.split("\n")[0]))
    if signature.kind not in {"exception", "timeout", "network", "collective"} or peeled.logger_mark:
        return text + "\n"
    if not looks_like_exception(peeled.text) or peeled.text.startswith(("  ", "\t")):
        return text + "\n"
    mark = "[rank0]: " if peeled.rank_mark else ""
    frames = (
        "Traceback (most recent call last):",
        '  File "/work/train.py", line 20, in main',
        "    dist.all_reduce(loss)",
    )
    return "".join(f"{mark}{frame}\n" for frame in frames) + text + "\n"


def run(folder: Path, signature: Signature, line: str, rank_1: str, behind: str) -> Analysis:
    """Analyse a run in which rank 0 (or the system) wrote ``line`` after step 5, and ``behind`` after it."""
    folder.mkdir()
    own = _ELSEWHERE.get(signature.stream or "")
    if own:
        (folder / own).write_text(line + "\n")
    record = "" if own else as_written_by_rank_0(signature, line)
    (folder / "rank0.log").write_text(opening(0) + record + behind)
    (folder / "rank1.log").write_text(opening(1) + rank_1)
    return analyze(folder)


def wrote_it(analysis: Analysis, signature: Signature) -> bool:
    """Whether the line was met at all; a fallback claims only what ends a traceback."""
    return signature.fallback or signature.name in {event.signature for event in analysis.events}


def undated(signature: Signature) -> list[str]:
    """The samples without a time of day: what happened on another day is no part of this run."""
    return [sample.line for sample in signature.samples if not _CLOCK.search(sample.line)]


def with_role(*roles: str) -> list[Signature]:
    return [signature for signature in SIGNATURES if signature.role in roles]


@pytest.mark.parametrize("signature", with_role("symptom", "teardown"), ids=lambda s: s.name)
def test_a_symptom_does_not_hide_the_cause_on_the_other_rank(signature: Signature, tmp_path: Path):
    for number, sample in enumerate(signature.samples):
        analysis = run(tmp_path / str(number), signature, sample.line, OUT_OF_MEMORY, "")

        verdict = analysis.verdict
        assert wrote_it(analysis, signature), sample.line
        assert (verdict.category, verdict.ranks) == ("cuda_oom", [1]), f"{sample.line}\n{verdict.explanation}"


@pytest.mark.parametrize("signature", with_role("noise", "context", "progress"), ids=lambda s: s.name)
def test_a_healthy_run_stays_healthy_whatever_harmless_line_it_has(signature: Signature, tmp_path: Path):
    for number, sample in enumerate(signature.samples):
        end = steps(6, 9) + "2026-11-30 19:11:10,000 INFO train: done\n"
        analysis = run(tmp_path / str(number), signature, sample.line, end, end)

        verdict = analysis.verdict
        assert wrote_it(analysis, signature), sample.line
        assert (verdict.category, verdict.status) == ("no_failure", "no_failure"), (
            f"{sample.line}\n{verdict.explanation}"
        )


@pytest.mark.parametrize("signature", [s for s in with_role("cause") if s.category not in _VAGUE], ids=lambda s: s.name)
def test_a_cause_is_blamed_though_the_other_rank_shows_the_timeout(signature: Signature, tmp_path: Path):
    for number, line in enumerate(undated(signature)[:2]):
        analysis = run(tmp_path / str(number), signature, line, WATCHDOG, "")

        assert wrote_it(analysis, signature), line
        assert analysis.verdict.category == signature.category, f"{line}\n{analysis.verdict.explanation}"


@pytest.mark.parametrize("signature", with_role("either", "pointer"), ids=lambda s: s.name)
def test_what_may_follow_from_a_failure_does_not_hide_the_one_on_the_other_rank(signature: Signature, tmp_path: Path):
    for line in undated(signature)[:1]:
        verdict = run(tmp_path / "run", signature, line, OUT_OF_MEMORY, "").verdict

        assert (verdict.category, verdict.ranks) == ("cuda_oom", [1]), f"{line}\n{verdict.explanation}"
