"""Breaks the run: the hooks that the training script calls, and what each fault does in them. Training side.

Every fault is real: the allocator really refuses, the process is really killed, the file is really cut. It
strikes only on the plan's rank (or, where faults.py says so, on every rank) and only at the plan's step.
"""

from __future__ import annotations

import ctypes
import datetime
import faulthandler
import importlib
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logforensics.harness.train import Job


def _torch(name: str = "torch") -> Any:
    return importlib.import_module(name)


def mark_struck() -> None:
    """Leave a mark for the harness that the fault really struck; it is no part of the logs."""
    Path(os.environ["LOGFORENSICS_PLAN"]).with_name("struck").touch()


def before_imports(job: Job) -> None:
    """Faults of the environment, before torch is imported."""
    fault = job.plan.fault
    if fault in ("segfault", "segfault_detail"):
        faulthandler.enable()
    if fault == "segfault_detail":
        mark_struck()
    if fault == "import_error" and job.guilty:
        mark_struck()
        importlib.import_module("flash_attn")
    if fault == "wrong_interface" and job.guilty:
        mark_struck()
        name = "NCCL_SOCKET_IFNAME" if job.plan.backend == "nccl" else "GLOO_SOCKET_IFNAME"
        os.environ[name] = "ib7"


def before_init(job: Job) -> None:
    """Faults between the import and the process group."""
    if job.plan.fault == "late_join" and job.guilty:
        mark_struck()
        time.sleep(job.plan.timeout * 6)
    if job.plan.fault == "exit_before_init" and job.guilty:
        mark_struck()
        sys.exit(1)


def model_width(job: Job) -> int:
    """The model's width; another one on the guilty rank when the ranks are to disagree."""
    if job.plan.fault == "cross_shape" and job.guilty:
        mark_struck()
        return 96
    return 64


def resume_path(job: Job, model: Any) -> Path | None:
    """The checkpoint to load at the start, broken as the fault says; None for a fresh start."""
    fault = job.plan.fault
    if fault not in ("checkpoint_truncated", "checkpoint_shape", "checkpoint_missing"):
        return None
    if job.guilty:
        mark_struck()
    torch = _torch()
    path = job.work / f"node{job.rank}-scratch" / "checkpoint-400" / "model.pt"  # each rank's own local disk
    path.parent.mkdir(parents=True)
    if fault == "checkpoint_missing" and job.guilty:
        return path
    state = model.state_dict()
    if fault == "checkpoint_shape" and job.guilty:
        state["head.weight"] = torch.zeros(300, 64)
        state["head.bias"] = torch.zeros(300)
    torch.save({"model": state}, path)
    if fault == "checkpoint_truncated" and job.guilty:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def data_folder(job: Job) -> Path:
    """Where this rank reads its shards: the guilty rank's copy is the spoiled one."""
    if job.guilty and job.plan.fault in ("missing_file", "truncated_file", "corrupt_file"):
        return job.work / "scratch" / "data"
    return job.work / "data"


def before_step(job: Job, step: int) -> None:
    """Strike, when this is the rank and the step."""
    plan = job.plan
    if plan.fault in ("sigterm_launcher", "ctrl_c") and step >= plan.at_step:
        if job.rank == 0:
            mark_struck()  # the harness is waiting for it to send the signal
        time.sleep(0.3)
    if plan.fault == "barrier_timeout" and step == plan.at_step:
        _monitored_barrier(job)
    if step < plan.at_step or not job.guilty:
        return
    if plan.fault in ("unused", "zero3_branch"):
        mark_struck()
        job.oddity.skip_block = True
    if step == plan.at_step:
        strike = _STRIKES.get(plan.fault)
        if strike is not None:
            mark_struck()
            strike(job)


def check_loss(job: Job, step: int, loss: Any) -> Any:
    """The script's own check for a finite loss, and the poison for it."""
    torch = _torch()
    if job.plan.fault in ("nan", "nan_anomaly") and job.guilty and step == job.plan.at_step:
        mark_struck()
        if job.plan.fault == "nan":
            loss = loss * float("nan")
        else:
            torch.autograd.set_detect_anomaly(True)
            loss = loss + torch.sqrt(loss * 0) * 0  # finite forward, 0/0 in backward
    if job.plan.fault == "loss_scale" and step >= job.plan.at_step:
        return loss * float("inf")
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()} at step {step} on rank {job.rank}")
    return loss


def reduce_metric(job: Job, step: int, value: Any) -> float:
    """The mean loss of all ranks, as scripts log it: one small collective a step, the place for mismatches."""
    dist = _torch("torch.distributed")
    fault = job.plan.fault
    if fault == "unused":  # this script logs each rank's own loss: else the ranks collide before DDP complains
        return float(value)
    if job.guilty and step == job.plan.at_step and fault in _METRIC_FAULTS:
        mark_struck()
        match fault:
            case "mismatch_op":
                dist.broadcast(value, src=job.rank)
            case "mismatch_size":
                dist.all_reduce(value.repeat(1024))
            case "mismatch_dtype":
                dist.all_reduce(value.double())
            case _:
                dist.barrier()
    dist.all_reduce(value)
    return float(value) / job.plan.world


def after_step(job: Job) -> None:
    """Undo what lasts for one step only."""
    if job.plan.fault == "shape":
        job.oddity.clip_features = False


def before_save(job: Job) -> None:
    """Faults of the checkpoint's disk."""
    if job.plan.fault == "disk_full":
        mark_struck()
    if job.plan.fault == "disk_full_errno" and job.guilty:
        mark_struck()
        path = job.work / "checkpoints" / "optimizer.pt"
        path.parent.mkdir(exist_ok=True)
        if not path.is_symlink():
            path.symlink_to("/dev/full")  # the kernel's own full disk: every write fails with ENOSPC
        with path.open("wb", buffering=0) as stream:
            stream.write(b"\0" * 4096)


def dump_flight_recorder(job: Job) -> None:
    """Write this rank's flight recorder; gloo records but never writes by itself."""
    if not job.plan.flight_recorder or job.plan.backend == "nccl":
        return
    dump = _torch("torch._C._distributed_c10d")._dump_fr_trace()
    folder = job.work / "logs"
    folder.mkdir(exist_ok=True)
    (folder / f"nccl_trace_rank_{job.rank}").write_bytes(dump)


_METRIC_FAULTS = ("mismatch_op", "mismatch_size", "mismatch_dtype", "extra_barrier")

# --- the strikes --------------------------------------------------------------------------------------------


def _shape(job: Job) -> None:
    job.oddity.clip_features = True


def _host_oom(job: Job) -> None:
    """Lower the address-space limit to what is in use and ask for more, as a job's limit does."""
    torch = _torch()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    job.cache = torch.zeros(256 << 20, dtype=torch.float32)  # type: ignore[attr-defined]


def _host_oom_python(job: Job) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    job.cache = bytearray(1 << 30)  # type: ignore[attr-defined]


def _host_oom_retried(job: Job) -> None:
    try:
        _host_oom(job)
    except RuntimeError as error:
        job.log.warn(f"allocation failed ({error}), retrying with a smaller cache")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    job.cache = _torch().zeros(1 << 10)  # type: ignore[attr-defined]


def _cuda_oom(job: Job) -> None:
    torch = _torch()
    hoard = []
    while True:
        hoard.append(torch.empty(4 << 30, dtype=torch.uint8, device=job.device))


def _cuda_oom_retried(job: Job) -> None:
    torch = _torch()
    try:
        _cuda_oom(job)
    except torch.OutOfMemoryError as error:
        job.log.warn(f"ran out of memory, retrying with a smaller batch: {error}")
        torch.cuda.empty_cache()


def _swallowed(job: Job) -> None:
    try:
        raise ConnectionError("metrics server at 10.0.0.5:8080 refused the connection")
    except ConnectionError:
        job.log.exception("could not send metrics, going on without")


def _scary(job: Job) -> None:
    job.log.warn("retrying request to https://example.org/metrics: 503 Server Error, attempt 2 of 5")
    job.log.warn("gradient overflow risk: max |grad| 61234.0; error feedback is on")
    job.log.warn("RuntimeError handling is enabled; timeout of the data service was raised to 1800 s")


def _stuck_io(job: Job) -> None:
    pipe = job.work / "mnt-shared-index.json"
    os.mkfifo(pipe)
    job.log.say(f"reading the sample index {pipe} from shared storage")
    os.close(os.open(pipe, os.O_RDONLY))  # nobody will ever write: blocks in the kernel as a dead mount does


def _stuck_gil(job: Job) -> None:
    libc = ctypes.PyDLL(None)  # PyDLL keeps the GIL, so not even a Python signal handler runs
    libc.sleep(int(job.plan.timeout * 6))


def _stuck_sleep(job: Job) -> None:
    time.sleep(job.plan.timeout * 6)


def _slow_eval(job: Job) -> None:
    torch = _torch()
    job.log.say("starting evaluation on the full validation set")
    until = time.monotonic() + job.plan.timeout * 4
    scores = torch.rand(64, 64)
    while time.monotonic() < until:
        scores = torch.softmax(scores @ scores.T, dim=-1)
        time.sleep(0.01)
    job.log.say("evaluation done")


def _slow_save(job: Job) -> None:
    path = job.work / "checkpoints" / f"step-{job.plan.at_step}" / "model.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    job.log.say(f"Saving model checkpoint to {path.parent}")
    until = time.monotonic() + job.plan.timeout * 4
    with path.open("wb") as stream:
        while time.monotonic() < until:
            stream.write(b"\0" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
            time.sleep(0.1)


def _monitored_barrier(job: Job) -> None:
    if job.guilty:
        mark_struck()
        time.sleep(job.plan.timeout * 6)
    wait = datetime.timedelta(seconds=job.plan.timeout / 2)
    _torch("torch.distributed").monitored_barrier(timeout=wait, wait_all_ranks=True)


def _segfault(job: Job) -> None:
    ctypes.string_at(0)


def _device_assert(job: Job) -> None:
    job.oddity.wild_token = True


def _illegal_access(job: Job) -> None:
    torch = _torch()
    # compiled on the device: reads an address that belongs to nobody
    stray = torch.cuda.jiterator._create_jit_fn("template <typename T> T stray(T x) { return x + *(T*)0x10; }")
    print(float(stray(torch.ones(8, device=job.device)).sum()))


def _nccl_watchdog(job: Job) -> None:
    torch = _torch()
    torch.cuda._sleep(int(2e9 * job.plan.timeout * 4))  # the collective queues behind this kernel


def _key_error(job: Job) -> None:
    batch = {"input_ids": [1, 2, 3]}
    print(batch["labels"])


def _no_cuda(job: Job) -> None:
    _torch().zeros(4).cuda()


_STRIKES: dict[str, Any] = {
    "shape": _shape,
    "host_oom": _host_oom,
    "host_oom_python": _host_oom_python,
    "host_oom_retried": _host_oom_retried,
    "cuda_oom": _cuda_oom,
    "cuda_oom_retried": _cuda_oom_retried,
    "swallowed": _swallowed,
    "none_warnings": _scary,
    "stuck_io": _stuck_io,
    "stuck_gil": _stuck_gil,
    "stuck_sleep": _stuck_sleep,
    "slow_eval": _slow_eval,
    "slow_save": _slow_save,
    "segfault": _segfault,
    "segfault_quiet": _segfault,
    "sigkill": lambda job: os.kill(os.getpid(), signal.SIGKILL),
    "sigterm": lambda job: os.kill(os.getpid(), signal.SIGTERM),
    "sigint": lambda job: os.kill(os.getpid(), signal.SIGINT),
    "sys_exit": lambda job: sys.exit(0),
    "sys_exit_1": lambda job: sys.exit(1),
    "device_assert": _device_assert,
    "illegal_access": _illegal_access,
    "nccl_watchdog": _nccl_watchdog,
    "key_error": _key_error,
    "no_cuda": _no_cuda,
}
