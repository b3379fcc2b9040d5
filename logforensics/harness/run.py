"""Starts the commands of one plan, waits for them, ends what is left, and keeps what they wrote.

Only processes that carry this run's own mark in their environment are ever ended: torchrun puts its workers
into sessions of their own, so a process group does not reach them, and a name would reach other people's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from logforensics.harness import launch as launching
from logforensics.harness.capture import write_fixture
from logforensics.harness.data import spoil_shards, write_shards
from logforensics.harness.faults import FAULTS
from logforensics.harness.plan import WRAPPED, Plan

# Seconds between the first failed process and SIGTERM to the rest, for the launcher `processes`. Longer than it
# takes to notice a killed peer: its orphaned DataLoader workers hold the sockets open for five seconds.
GRACE = 12.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    codes: tuple[int, ...]
    """Of the started commands, in order; negative: the signal."""
    ended: bool
    """It did not end by itself within its bound and was ended."""
    seconds: float
    struck: bool
    """The injected code was reached."""


def own_processes(mark: str) -> list[int]:
    """The processes that inherited this run's mark."""
    wanted = f"LOGFORENSICS_RUN={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or another user's
    return found


def end_processes(mark: str, patience: float = 3.0) -> int:
    """SIGTERM, then SIGKILL, to what is left of the run; returns how many there were."""
    left = own_processes(mark)
    count = len(left)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            time.sleep(0.1)
            left = own_processes(mark)
        if not left:
            break
    return count


@contextlib.contextmanager
def occupied(plan: Plan, port: int) -> Iterator[None]:
    """Listen on the port ourselves where the fault is that somebody else does."""
    if plan.fault != "port_in_use":
        yield
        return
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen(1)
        with socket.socket(socket.AF_INET6) as also:
            also.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            with contextlib.suppress(OSError):
                also.bind(("::", port))
                also.listen(1)
            yield


class _Pump:
    """Copies lines of the tasks into one file, each behind its label, in the order in which they arrive."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("wb")
        self.lock = threading.Lock()
        self.threads: list[threading.Thread] = []

    def follow(self, source: IO[bytes], label: str) -> None:
        thread = threading.Thread(target=self._copy, args=(source, label.encode()), daemon=True)
        thread.start()
        self.threads.append(thread)

    def _copy(self, source: IO[bytes], label: bytes) -> None:
        for line in source:
            with self.lock:
                self.stream.write(label + line.removesuffix(b"\n") + b"\n")
                self.stream.flush()

    def close(self) -> None:
        for thread in self.threads:
            thread.join(5)
        self.stream.close()


def _start(plan: Plan, task: launching.Task, work: Path, pump: _Pump | None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **launching.base_environment(plan, work), **task.environment}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in task.environment:
            environment.pop(name, None)
    argv = launching.namespaced(plan, task, work)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started with `&`: children would ignore Ctrl-C too
        argv = ("env", "--default-signal=INT", *argv)
    logs = work / "logs"
    if pump is not None:
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        for stream, source in (("stdout", process.stdout), ("stderr", process.stderr)):
            pump.follow(source, task.label.replace("{stream}", stream).replace("{pid}", str(process.pid)))
        return process
    with contextlib.ExitStack() as files:
        if plan.layout in ("tee", "combined"):
            name = f"node{task.node}.log" if plan.nnodes > 1 else "train.log"
            out = err = files.enter_context((logs / name).open("ab"))
        else:
            folder = logs / f"node{task.node}" if plan.nnodes > 1 else logs
            folder.mkdir(exist_ok=True)
            out = files.enter_context((folder / "launcher.out").open("ab"))
            err = files.enter_context((folder / "launcher.err").open("ab"))
        return subprocess.Popen(
            argv,
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _send_external(plan: Plan, processes: list[subprocess.Popen[bytes]], work: Path) -> bool:
    """Send the fault's signal once the run has reached its step; True when sent."""
    external = FAULTS[plan.fault].external
    if not external or not (work / "struck").exists():
        return False
    time.sleep(0.5)
    number = signal.Signals[external[0]]
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            if external[1] == "group":
                os.killpg(process.pid, number)
            else:
                os.kill(process.pid, number)
    return True


def _wait(plan: Plan, processes: list[subprocess.Popen[bytes]], work: Path) -> bool:
    """Wait until all have ended; True when the bound ran out first."""
    start = time.monotonic()
    sent = False
    failed_at: float | None = None
    while any(process.poll() is None for process in processes):
        now = time.monotonic()
        if now - start > plan.bound:
            return True
        if not sent:
            sent = _send_external(plan, processes, work)
        if plan.launcher == "processes":
            if failed_at is None and any(process.poll() not in (None, 0) for process in processes):
                failed_at = now
            if failed_at is not None and now - failed_at > GRACE:
                for process in processes:
                    if process.poll() is None:
                        process.terminate()
                failed_at = now + 10
        time.sleep(0.1)
    return False


def run_plan(plan: Plan, out: Path) -> Outcome:
    """Make the run and write its fixture into ``out`` (which must not exist yet)."""
    work = Path(tempfile.mkdtemp(prefix="lf-", dir="/tmp"))
    try:
        (work / "tmp").mkdir()
        (work / "logs").mkdir()
        (work / "plan.json").write_text(plan.to_json())
        write_shards(plan, work / "data")
        if plan.fault in ("missing_file", "truncated_file", "corrupt_file"):
            write_shards(plan, work / "scratch" / "data")
            spoil_shards(plan, work / "scratch" / "data")
        port = launching.free_port()
        commands = launching.prepare(plan, work, port)
        for name, text in commands.files.items():
            (work / name).write_text(text)
        pump = _Pump(work / "logs" / _WRAPPED_NAMES[plan.layout]) if plan.layout in WRAPPED else None
        start = time.monotonic()
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with occupied(plan, port):
                for task in commands.tasks:
                    process = _start(plan, task, work, pump)
                    processes.append(process)  # at once: what is started must be ended, whatever happens next
                ended = _wait(plan, processes, work)
        finally:
            end_processes(work.name)
            codes = tuple(process.wait(10) for process in processes)
            if pump is not None:
                pump.close()
        struck = (work / "struck").exists() or plan.fault in _NOTHING_IN_THE_SCRIPT
        outcome = Outcome(codes, ended, round(time.monotonic() - start, 1), struck)
        write_fixture(plan, outcome.codes, outcome.ended, outcome.seconds, commands, work, out)
        return outcome
    finally:
        shutil.rmtree(work, ignore_errors=True)


_WRAPPED_NAMES = {
    "srun": "slurm-4711.out",
    "mpirun": "mpirun.log",
    "kubectl": "pods.log",
    "ray": "driver.log",
}
# Injected by the launch or by the configuration: there is no line of the script that strikes.
_NOTHING_IN_THE_SCRIPT = {
    "none",
    "port_in_use",
    "wrong_address",
    "bad_host",
    "missing_node",
    "duplicate_machine_rank",
    "batch_config",
    "loss_scale",
    "duplicate_gpu",
}
