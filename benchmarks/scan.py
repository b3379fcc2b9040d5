"""How fast is the whole program against ripgrep, on a gigabyte of training logs with one real failure?

    python benchmarks/scan.py [--size-mb 1024] [--runs 5] [--dir DIR] [--keep]

Makes 64 per-rank log files (98 % ordinary progress and NCCL INFO lines, the rest warnings and chatter, and
one real failure: rank 17 runs out of GPU memory, the others time out), then runs, alternately and over the
same files in the page cache, `logforensics analyze` (the whole process, start to end) and
`rg -c -F -f LITERALS` with the failure words below. Prints the ratio of the medians, the peak memory, and
how long `logforensics --help` takes. The verdict is checked too: a fast wrong answer does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS = 64
_BYTES_PER_STEP = 152  # a progress line, half an NCCL line, now and then a warning
GUILTY = 17
LITERALS = """\
Traceback (most recent call last)
CUDA out of memory
OutOfMemoryError
Watchdog caught collective operation timeout
NCCL WARN
NCCL error
RuntimeError
ValueError
AssertionError
Segmentation fault
Killed process
SIGKILL
SIGTERM
exitcode
ncclRemoteError
ncclSystemError
Connection reset by peer
Connection closed by peer
Timed out waiting
No space left on device
device-side assert
illegal memory access
uncorrectable ECC
NVRM: Xid
oom-kill
Out Of Memory
DUE TO TIME LIMIT
Broken pipe
terminate called
mat1 and mat2 shapes
"""


def write_logs(folder: Path, size_mb: int) -> int:
    """Write the 64 files; return the bytes written. The same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "literals.txt").write_text(LITERALS)
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    share = size_mb * (1 << 20) // RANKS
    return sum(_write_rank(logs / f"rank{rank}.log", rank, share) for rank in range(RANKS))


def _write_rank(path: Path, rank: int, size: int) -> int:
    draw = random.Random(rank)
    host, pid = f"node-{rank // 8:02d}", 20_000 + rank
    lines: list[str] = [
        f"2026-11-30 18:00:00,{rank:03d} INFO [rank {rank}] train: init done: rank={rank} world={RANKS} pid={pid}\n"
    ]
    steps = size // _BYTES_PER_STEP
    with path.open("w") as file:
        for step in range(1, steps + 1):
            second = step // 4
            clock = f"{18 + second // 3600 % 6:02d}:{second // 60 % 60:02d}:{second % 60:02d},{step % 4 * 250:03d}"
            block = [
                f"2026-11-30 {clock} INFO [rank {rank}] train: step {step} loss {draw.random() * 4:.4f} "
                f"lr 1.00e-04 grad_norm {draw.random():.3f} tok/s {draw.randint(9000, 12000)}\n"
            ]
            if step % 2 == 0:
                channel, peer = step % 32, (rank + 1) % RANKS
                block.append(
                    f"{host}:{pid}:{pid + 40} [{rank % 8}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank % 8}] -> "
                    f"{peer}[{peer % 8}] via P2P/CUMEM/read\n"
                )
            if step % 70 == 0:
                block.append(
                    f"2026-11-30 {clock} WARNING [rank {rank}] data: shard {step % 512:05d} took "
                    f"{draw.random() * 9:.2f} s to open, retrying is not needed\n"
                )
            lines += block
            if len(lines) > 4096:
                file.write("".join(lines))
                lines = []
        lines.append(_failure(rank, steps))
        file.write("".join(lines))
    return path.stat().st_size


def _failure(rank: int, step: int) -> str:
    if rank == GUILTY:
        return (
            f"[rank{rank}]: Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "/work/train.py", line 203, in main\n'
            f"[rank{rank}]:     loss.backward()\n"
            f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.41 GiB. GPU 1 has a total "
            "capacity of 79.10 GiB of which 1.68 GiB is free. Including non-PyTorch memory, this process has 77.42 GiB "
            "memory in use. Of the allocated memory 70.97 GiB is allocated by PyTorch, and 4.20 GiB is reserved by "
            "PyTorch but unallocated.\n"
        )
    sequence = step * 3 + 1
    second = step // 4 + 600
    clock = f"{18 + second // 3600 % 6:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return (
        f"[rank{rank}]:[E1130 {clock}.{rank:09d} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=26214400, "
        "NumelOut=26214400, Timeout(ms)=600000) ran for 600024 milliseconds before timing out.\n"
    )


def run(command: list[str], cwd: Path) -> tuple[float, int, bytes]:
    """Return wall seconds, peak resident kilobytes and the output of one process."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return seconds, usage.ru_maxrss, out.read()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size-mb", type=int, default=1024)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--dir", type=Path, help="where to write the logs (default: a temporary folder)")
    options.add_argument("--keep", action="store_true", help="leave the logs there")
    chosen = options.parse_args()
    if shutil.which("rg") is None:
        print("ripgrep is missing: apt-get install ripgrep", file=sys.stderr)
        return 2
    folder = chosen.dir or Path(tempfile.mkdtemp(prefix="logforensics-bench-"))
    try:
        return compare(folder, chosen.size_mb, chosen.runs)
    finally:
        if not chosen.keep:
            shutil.rmtree(folder, ignore_errors=True)


def compare(folder: Path, size_mb: int, runs: int) -> int:
    size = write_logs(folder, size_mb)
    program = [sys.executable, "-m", "logforensics"]
    ours = [*program, "analyze", "logs"]
    theirs = ["rg", "-c", "-F", "-f", "literals.txt", "logs"]
    _, _, answer = run([*program, "analyze", "logs", "--json", "-"], folder)  # also warms caches of both kinds
    verdict = json.loads(answer)["verdict"]
    if (verdict["category"], verdict["ranks"]) != ("cuda_oom", [GUILTY]):
        print(f"wrong verdict: {verdict['category']} on {verdict['ranks']}", file=sys.stderr)
        return 1
    run(theirs, folder)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    memory = 0
    for _ in range(runs):
        seconds, peak, _ = run(ours, folder)
        times["ours"].append(seconds)
        memory = max(memory, peak)
        times["theirs"].append(run(theirs, folder)[0])
    help_seconds = statistics.median(run([*program, "--help"], folder)[0] for _ in range(runs))
    mine, other = (statistics.median(times[name]) for name in ("ours", "theirs"))
    print(f"{size / 1e9:.2f} GB in {RANKS} files, {runs} runs, medians")
    print(f"logforensics analyze   {mine:6.2f} s   {size / mine / 1e6:7.0f} MB/s   peak memory {memory / 1024:.0f} MB")
    words = len(LITERALS.splitlines())
    print(f"rg -c -F -f LITERALS   {other:6.2f} s   {size / other / 1e6:7.0f} MB/s   ({words} literals)")
    print(f"ratio                  {mine / other:6.2f}     (below 1: faster than ripgrep)")
    print(f"logforensics --help    {help_seconds:6.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
