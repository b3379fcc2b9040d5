"""Faults that need a GPU. Written against torch's and NCCL's sources; none has run where this was written."""

from __future__ import annotations

from logforensics.harness.plan import Plan, Truth
from logforensics.harness.truths import Fault, fine, shown_here


def _watchdog(plan: Plan) -> Truth:
    line = "Watchdog caught collective operation timeout"
    also = ("slow_rank",)
    note = "the collective queued behind a long kernel; a stuck GPU and a slow one look alike"
    return Truth("undetermined", "unknown_timeout", (plan.rank,), "mid_training", line, also, note)


def _duplicate(plan: Plan) -> Truth:
    note = "NCCL before 2.30 says 'Duplicate GPU detected', later 'Multiple Ranks are using the same GPU'"
    ranks = tuple(range(plan.world))
    return Truth("diagnosed", "duplicate_gpu", ranks, "first_collective", "GPU", ("config_error",), note)


GPU_FAULTS = (
    Fault(
        "cuda_oom",
        "the rank allocates until the GPU is full",
        shown_here("cuda_oom", "CUDA out of memory"),
        device="cuda",
        gpus=1,
        world=1,
    ),
    Fault(
        "cuda_oom_retried",
        "the rank fills the GPU, catches it and goes on; the run finishes",
        fine(),
        device="cuda",
        gpus=1,
        world=1,
    ),
    Fault(
        "device_assert",
        "a token id outside the embedding",
        shown_here("device_assert", "device-side assert triggered"),
        device="cuda",
        gpus=1,
        world=1,
    ),
    Fault(
        "illegal_access",
        "a kernel reads far outside its tensor",
        shown_here("illegal_memory_access", "an illegal memory access was encountered"),
        device="cuda",
        gpus=1,
        world=1,
    ),
    Fault(
        "nccl_watchdog",
        "a collective queues behind a kernel that outlasts the timeout",
        _watchdog,
        device="cuda",
        backend="nccl",
        gpus=1,
        world=1,
    ),
    Fault(
        "duplicate_gpu",
        "two NCCL ranks use cuda:0",
        _duplicate,
        device="cuda",
        backend="nccl",
        gpus=1,
    ),
    Fault(
        "loss_scale",
        "fp16 losses are infinite until the loss scale is exhausted",
        shown_here("nan_loss", "loss scale already at minimum", everyone=True),
        ("zero",),
        because="DeepSpeed's loss scaler is what gives up",
        device="cuda",
        gpus=1,
        world=1,
    ),
)
