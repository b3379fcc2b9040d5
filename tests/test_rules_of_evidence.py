"""Rules of the correlator that reports of strangers taught, each on the smallest log that shows it."""

from __future__ import annotations

from pathlib import Path

from logforensics import analyze
from logforensics.model import Verdict

WATCHDOG = (
    "[rank{rank}]:[E1130 19:10:02.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600024 "
    "milliseconds before timing out."
)


def verdict_of(folder: Path, *lines: str) -> Verdict:
    (folder / "run.log").write_text("\n".join(lines) + "\n")
    return analyze(folder).verdict


def test_a_job_that_is_cancelled_after_a_task_failed_was_not_interrupted(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        WATCHDOG.format(rank=1),
        "srun: error: node-1: task 1: Exited with exit code 1",
        "slurmstepd: error: *** STEP 6053.0 ON node-1 CANCELLED AT 2026-11-30T19:10:05 ***",
    )

    assert verdict.category != "interrupted"


def test_spawns_own_exception_gives_way_to_the_one_it_brings(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "Traceback (most recent call last):",
        '  File "/env/lib/python3.8/site-packages/torch/multiprocessing/spawn.py", line 118, in join',
        "    raise Exception(msg)",
        "Exception: ",
        "",
        "-- Process 1 terminated with the following error:",
        "Traceback (most recent call last):",
        '  File "/work/optim.py", line 170, in clip_grad_norm',
        "    raise FloatingPointError(message)",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
    )

    assert (verdict.category, verdict.ranks) == ("nan_loss", [1])
    assert "Minimum loss scale" in verdict.evidence[0].text


def test_a_barrier_that_counts_who_came_names_who_did_not(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "Traceback (most recent call last):",
        '  File "/work/train.py", line 9, in main',
        "    dist.init_process_group('nccl')",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:10:00)",
    )

    assert (verdict.status, verdict.category, verdict.ranks) == ("diagnosed", "missing_node", [1])


def test_a_launcher_that_reports_a_failure_is_never_a_healthy_run(tmp_path: Path):
    verdict = verdict_of(
        tmp_path,
        "2026-11-30 19:00:01,000 INFO step 1 loss 1.5",
        "[2026-11-30 19:00:05,000] [ERROR] [launch.py:325:sigkill_handler] ['/bin/python', '-u', 'train.py', "
        "'--local_rank=1'] exits with return code = -9",
    )

    assert (verdict.status, verdict.category) == ("undetermined", "unknown_exit")


def test_the_rank_that_every_mismatch_names_is_the_odd_one(tmp_path: Path):
    text = (
        "[rank{own}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {own} is running collective: "
        "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[1], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but Rank 2 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=3, OpType=BROADCAST, TensorShape=[1], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))."
        "Collectives differ in the following aspects: \t Op type: ALLREDUCEvs BROADCAST"
    )
    verdict = verdict_of(tmp_path, *(text.format(own=rank) for rank in (0, 1, 3)))

    assert (verdict.category, verdict.ranks) == ("collective_mismatch", [2])
