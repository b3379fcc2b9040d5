"""A run that was started again: every attempt is an incident of its own, in folders and inside one log."""

from __future__ import annotations

from pathlib import Path

import pytest

from logforensics import Analysis, analyze

ROOT = Path(__file__).parents[1]
OOM = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/work/train.py", line 203, in <module>\n'
    "[rank{rank}]:     loss = model(batch)\n"
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
    "79.10 GiB of which 1.02 GiB is free.\n"
)
FAILED = (
    "E1130 19:{minute:02}:30.000000 100 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
    "local_rank: {rank} (pid: {pid}) of binary: /env/bin/python\n"
)
AGAIN = (
    "I1130 19:{minute:02}:31.000000 100 torch/distributed/elastic/agent/server/api.py:943] [default] Worker group FAILED. "
    "{left}/3 attempts left; will restart worker group\n"
)


def started(minute: int, ranks: int = 2) -> str:
    return "".join(
        f"2026-11-30 19:{minute:02}:00,000 INFO [rank {rank}] train: ***** Running training *****\n"
        for rank in range(ranks)
    )


def steps(minute: int, first: int, last: int) -> str:
    return "".join(
        f"2026-11-30 19:{minute:02}:{second:02},000 INFO [rank 0] train: step {step} loss 1.5\n"
        for second, step in enumerate(range(first, last + 1), 1)
    )


def of_log(folder: Path, text: str) -> Analysis:
    (folder / "run.log").write_text(text)
    return analyze(folder / "run.log")


def causes(analysis: Analysis) -> list[tuple[int, str, list[int]]]:
    return [(attempt.number, attempt.category, attempt.ranks) for attempt in analysis.attempts]


def test_a_run_that_was_never_started_again_is_one_attempt(tmp_path: Path):
    analysis = of_log(
        tmp_path, started(1) + steps(1, 0, 5) + OOM.format(rank=1) + FAILED.format(minute=1, rank=1, pid=7)
    )

    assert causes(analysis) == [(0, "cuda_oom", [1])]
    assert not any("Attempt" in line for line in analysis.verdict.explanation)


def test_the_agents_line_tells_the_attempt_by_its_number(tmp_path: Path):
    oom = OOM.format(rank=1)
    analysis = of_log(tmp_path, oom + AGAIN.format(minute=1, left=2) + oom + AGAIN.format(minute=2, left=1) + oom)

    # "2/3 attempts left" is said before the second restart: the log's beginning is lost
    assert sorted({event.attempt for event in analysis.events}) == [0, 2, 3]


def test_without_the_agents_line_a_second_end_of_the_same_rank_tells(tmp_path: Path):
    text = started(1) + OOM.format(rank=1) + FAILED.format(minute=1, rank=1, pid=7)
    text += "[rank0]: RuntimeError: The server socket has failed to listen on any local network address. port: 29500\n"
    text += FAILED.format(minute=2, rank=1, pid=9)

    analysis = of_log(tmp_path, text)

    assert [attempt.number for attempt in analysis.attempts] == [0, 1]
    assert (analysis.verdict.category, analysis.verdict.ranks) == ("cuda_oom", [1])


def test_ranks_that_start_after_their_end_was_reported_are_a_new_attempt(tmp_path: Path):
    once = started(1) + steps(1, 0, 5) + OOM.format(rank=1) + FAILED.format(minute=1, rank=1, pid=7)
    again = started(3) + steps(3, 0, 5) + OOM.format(rank=1) + FAILED.format(minute=3, rank=1, pid=9)

    analysis = of_log(tmp_path, once + again)

    assert causes(analysis) == [(0, "cuda_oom", [1]), (1, "cuda_oom", [1])]
    assert analysis.attempts[0].last_step == 5
    assert any("Every attempt failed the same way" in line for line in analysis.verdict.explanation)


def test_a_shell_that_loops_is_seen_by_the_starts_that_are_made_again(tmp_path: Path):
    once = (
        "2026-11-30 19:0{minute}:00,000 INFO torch version 2.4.0\n"
        "2026-11-30 19:0{minute}:01,000 INFO [rank 0] process group ready: rank 0 of 2, backend nccl\n"
        "2026-11-30 19:0{minute}:02,000 INFO [rank 0] ***** Running training *****\n"
        "2026-11-30 19:0{minute}:03,000 INFO [rank 0] step 1 loss 1.5\n"
        "2026-11-30 19:0{minute}:03,000 INFO [rank 1] ***** Running training *****\n"
    ) + OOM.format(rank=1)

    analysis = of_log(tmp_path, once.format(minute=1) + once.format(minute=5))

    assert [attempt.number for attempt in analysis.attempts] == [0, 1]


def test_an_exception_that_was_caught_is_no_end(tmp_path: Path):
    caught = 'Traceback (most recent call last):\n  File "/work/eval.py", line 3, in run\nValueError: no such metric\n'
    text = started(1) + steps(1, 0, 5) + caught + started(2) + steps(2, 6, 12)

    analysis = of_log(tmp_path, text)

    assert [attempt.number for attempt in analysis.attempts] == [0]


def test_a_failure_that_was_left_far_behind_is_not_the_runs(tmp_path: Path):
    once = started(1) + steps(1, 0, 5) + OOM.format(rank=1) + FAILED.format(minute=1, rank=1, pid=7)
    again = started(3) + steps(3, 6, 40)
    again += '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/work/train.py", line 9, in <module>\n'
    again += "[rank0]: KeyError: 'labels'\n" + FAILED.format(minute=4, rank=0, pid=9)

    verdict = of_log(tmp_path, once + again).verdict

    assert (verdict.category, verdict.ranks) == ("user_exception", [0])
    assert any("was overcome" in line for line in verdict.explanation)


def test_what_follows_soon_after_a_restart_is_not_the_cause(tmp_path: Path):
    once = started(1) + steps(1, 0, 5) + OOM.format(rank=1) + FAILED.format(minute=1, rank=1, pid=7)
    again = started(3) + steps(3, 0, 1)
    again += '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/work/train.py", line 9, in <module>\n'
    again += "[rank0]: KeyError: 'labels'\n" + FAILED.format(minute=4, rank=0, pid=9)

    analysis = of_log(tmp_path, once + again)

    assert (analysis.verdict.category, analysis.verdict.ranks) == ("cuda_oom", [1])
    assert causes(analysis)[1][1:] == ("user_exception", [0])


def test_a_rank_file_without_a_border_goes_by_the_time_of_the_launchers(tmp_path: Path):
    (tmp_path / "launcher.log").write_text(AGAIN.format(minute=2, left=3) + AGAIN.format(minute=4, left=2))
    (tmp_path / "rank_1.log").write_text(
        steps(1, 0, 2).replace("rank 0", "rank 1") + steps(3, 3, 4).replace("rank 0", "rank 1")
    )
    analysis = analyze(tmp_path)

    assert {event.attempt for event in analysis.events if event.fields.get("step") == 0} == {0}
    assert {event.attempt for event in analysis.events if event.fields.get("step") == 4} == {1}


def test_many_attempts_are_told_by_the_first_and_the_last(tmp_path: Path):
    text = "".join(
        started(minute) + steps(minute, 0, 5) + OOM.format(rank=1) + FAILED.format(minute=minute, rank=1, pid=minute)
        for minute in range(1, 9)
    )
    analysis = of_log(tmp_path, text)

    assert len(analysis.attempts) == 8
    assert [line for line in analysis.verdict.explanation if "in between" in line] == ["4 more attempts in between."]


@pytest.mark.parametrize(
    ("name", "attempts"),
    [
        ("ddp-shape-restart", 2),
        ("ddp-shape-tee-restart", 3),
        ("ddp-dl_exception-combined-4ranks-restart", 2),
        ("fsdp2-sigkill-tee-restart", 3),
    ],
)
def test_the_attempts_of_a_real_run_are_counted(name: str, attempts: int):
    assert len(analyze(ROOT / "fixtures" / name / "logs").attempts) == attempts


def test_no_other_real_run_was_started_twice():
    for logs in sorted((ROOT / "fixtures").glob("*/logs")):
        if not logs.parent.name.endswith("-restart"):
            assert len(analyze(logs).attempts) == 1, logs.parent.name
