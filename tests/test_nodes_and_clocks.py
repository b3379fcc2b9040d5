"""Which ranks a host has, whose GPU a bus number means, and how far nodes' clocks are apart."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from logforensics import analyze

START = datetime(2026, 11, 30, 19, 0, 0)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.41 GiB. GPU 1 has a total capacity of 79.10 GiB"
WATCHDOG = (
    "[rank{rank}]:[E{clock}.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600024 "
    "milliseconds before timing out."
)


def test_failures_that_name_a_host_are_its_ranks(tmp_path: Path):
    """DeepSpeed prints which ranks a host has; pdsh puts the host before every line."""
    launch = (
        "[2026-11-30 19:00:00,000] [INFO] [launch.py:164:main] global_rank_mapping=defaultdict(<class 'list'>, "
        "{'node-1': [0, 1], 'node-2': [2, 3]})"
    )
    failure = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', "    import nothere"]
    log = [f"node-{n}: {launch}" for n in (1, 2)]
    for _ in range(2):
        log += [f"node-2: {line}" for line in (*failure, "ModuleNotFoundError: No module named 'nothere'")]
    (tmp_path / "run.log").write_text("\n".join(log) + "\n")

    verdict = analyze(tmp_path).verdict

    assert (verdict.category, verdict.ranks) == ("import_error", [2, 3])


def test_a_kernel_line_that_names_a_bus_is_the_rank_that_uses_it(tmp_path: Path):
    nccl = "node1:{pid}:{pid} [{gpu}] NCCL INFO comm 0x1 rank {gpu} nranks 2 cudaDev {gpu} busId {bus} commId 0x2 - Init COMPLETE"
    lines = [nccl.format(pid=100 + gpu, gpu=gpu, bus=bus) for gpu, bus in enumerate(("18000", "5d000"))]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "dmesg_node1").write_text(
        "[12345.678901] NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )

    verdict = analyze(tmp_path).verdict

    assert (verdict.category, verdict.ranks) == ("gpu_hardware", [1])


def two_nodes(folder: Path, ahead: timedelta) -> None:
    """Rank 2 on node1 runs out of memory; all others time out ten minutes later. node1's clock is ``ahead``."""
    for rank in range(4):
        node = rank // 2
        off = ahead if node else timedelta()

        def stamp(seconds: float, off: timedelta = off) -> str:
            return (START + off + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]

        lines = [f"{stamp(step)} INFO step {step} loss 1.5" for step in range(1, 30)]
        if rank == 2:
            lines += [f"[rank{rank}]: Traceback (most recent call last):", f'[rank{rank}]:   File "t.py", line 1, in f']
            lines += [f"[rank{rank}]:     x.backward()", f"[rank{rank}]: {OOM}"]
        else:
            clock = (START + off + timedelta(seconds=631)).strftime("%m%d %H:%M:%S")
            lines.append(WATCHDOG.format(rank=rank, clock=clock))
        path = folder / f"node{node}" / f"rank{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("seconds", [0, -90, 300, 10_800], ids=["right", "90 s behind", "5 min ahead", "3 h ahead"])
def test_a_node_whose_clock_is_off_changes_nothing(tmp_path: Path, seconds: int):
    two_nodes(tmp_path, timedelta(seconds=seconds))

    analysis = analyze(tmp_path)
    verdict = analysis.verdict

    assert (verdict.category, verdict.ranks, verdict.confidence) == ("cuda_oom", [2], "high")
    assert any("gave up waiting" in line for line in verdict.explanation)
    assert any(name.startswith("clock of") for name in analysis.facts) is (seconds != 0)


def test_the_correction_is_the_offset(tmp_path: Path):
    two_nodes(tmp_path, timedelta(seconds=300))

    analysis = analyze(tmp_path)

    last = {e.rank: e.time_us for e in analysis.events if e.role == "progress" and e.fields.get("step") == 29}
    assert max(last.values()) - min(last.values()) < 1_000_000


def test_a_machine_log_of_another_day_is_about_somebody_else(tmp_path: Path):
    steps = [f"2026-11-30 19:00:{step:02d},000 INFO step {step} loss 1.5" for step in range(1, 30)]
    (tmp_path / "train.log").write_text("\n".join([*steps, "2026-11-30 19:00:31,000 INFO training finished"]) + "\n")
    (tmp_path / "dmesg_node1").write_text(
        "[Sat Nov 28 03:12:09 2026] Out of memory: Killed process 801177 (python) total-vm:1kB, anon-rss:1kB, "
        "file-rss:1kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n"
    )

    assert analyze(tmp_path).verdict.category == "no_failure"


def test_a_suspect_that_wrote_a_bare_error_is_quoted_before_those_who_waited(tmp_path: Path):
    error = (
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled cuda error"
    )
    (tmp_path / "rank0.log").write_text(
        "2026-11-30 19:00:01,000 INFO step 1 loss 1.5\nTraceback (most recent call last):\n"
        f'  File "train.py", line 1, in main\n    dist.all_reduce(x)\n{error}, NCCL version 2.20.5\n'
    )
    waited = WATCHDOG.format(rank=1, clock="1130 19:10:02")
    (tmp_path / "rank1.log").write_text(f"2026-11-30 19:00:01,000 INFO step 1 loss 1.5\n{waited}\n")

    verdict = analyze(tmp_path).verdict

    assert verdict.ranks == [0]
    assert verdict.evidence[0].source.endswith("rank0.log")
