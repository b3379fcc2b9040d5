"""Every fault that can be injected: what is done, where it makes sense, and which truth follows from it."""

from __future__ import annotations

from logforensics.harness.faults_gpu import GPU_FAULTS
from logforensics.harness.faults_launch import LAUNCH_FAULTS
from logforensics.harness.plan import Plan, refuse_shape
from logforensics.harness.truths import (
    Fault,
    barrier,
    cross_shape,
    disk_full,
    early_exit,
    exit_only,
    fine,
    interrupted,
    lenient,
    mismatch,
    other_branch,
    preempted,
    shown_here,
    silent,
    spoken,
    unused,
    wrong_interface,
)

_AGENTS = ("torchrun", "accelerate")
_UNEVEN_NOTE = "the rank with fewer batches waits in the barrier while the others are still in the epoch"

RANK_FAULTS = (
    Fault("none", "nothing: the run finishes", fine(), world=1),
    Fault("none_warnings", "scary but harmless warnings on one rank; the run finishes", fine()),
    Fault("host_oom_retried", "an allocation fails, is caught and retried smaller; the run finishes", fine()),
    Fault("swallowed", "an exception is logged with its traceback and swallowed; the run finishes", fine()),
    Fault(
        "shape",
        "the head gets one feature too few",
        shown_here("shape_mismatch", "mat1 and mat2 shapes cannot be multiplied"),
    ),
    Fault(
        "cross_shape",
        "the model is built with another width on one rank",
        lenient(cross_shape, "launch", "rendezvous"),
    ),
    Fault(
        "dl_exception",
        "the dataset raises ValueError in a DataLoader worker",
        shown_here("dataloader", "has no end-of-text token", "user_exception"),
    ),
    Fault(
        "dl_kill",
        "a DataLoader worker gets SIGKILL",
        shown_here("dataloader", "is killed by signal: Killed", "host_oom"),
    ),
    Fault(
        "dl_segfault",
        "a DataLoader worker dereferences a null pointer",
        shown_here("dataloader", "is killed by signal: Segmentation fault", "segfault"),
    ),
    Fault("dl_hang", "a DataLoader worker sleeps for ever", silent("unknown_timeout", "slow_rank", "dataloader")),
    Fault(
        "collate",
        "a sample is one token short, so the batch cannot be stacked",
        shown_here("dataloader", "stack expects each tensor to be equal size", "shape_mismatch"),
    ),
    Fault(
        "shm_full",
        "/dev/shm is a 3 MB tmpfs and one rank's batches grow beyond it",
        shown_here(
            "dataloader",
            "unable to allocate shared memory(shm)",
            "host_oom",
            "disk_full",
            note="'No space left on device' is /dev/shm here, not the disk",
        ),
        needs_mount=True,
    ),
    Fault(
        "missing_file",
        "a shard is missing from one rank's copy of the data",
        shown_here("dataloader", "No such file or directory", "user_exception"),
    ),
    Fault(
        "corrupt_file",
        "a shard in one rank's copy of the data is an HTML error page",
        shown_here("dataloader", "Not a gzipped file", "user_exception"),
    ),
    Fault(
        "truncated_file",
        "a shard in one rank's copy of the data is cut short",
        shown_here("dataloader", "Compressed file ended before the end-of-stream marker", "user_exception"),
    ),
    Fault(
        "host_oom",
        "the address-space limit is lowered and a big tensor is asked for",
        shown_here("host_oom", "DefaultCPUAllocator: can't allocate memory"),
    ),
    Fault(
        "host_oom_python",
        "the address-space limit is lowered and a big bytearray is asked for",
        shown_here("host_oom", "MemoryError"),
    ),
    Fault(
        "sigkill",
        "the rank gets SIGKILL, as from the kernel's OOM killer",
        exit_only("unknown_exit", -9, "host_oom"),
    ),
    Fault(
        "uneven",
        "a filter leaves one rank two batches fewer",
        spoken(
            "uneven_inputs",
            "epoch 0 finished after",
            "collective_mismatch",
            phase="epoch_end",
            note=_UNEVEN_NOTE,
        ),
    ),
    Fault("stuck_sleep", "the rank sleeps, with nothing logged", silent("unknown_timeout", "slow_rank")),
    Fault(
        "stuck_gil",
        "a C call holds the GIL and sleeps, with nothing logged",
        silent("unknown_timeout", "slow_rank"),
    ),
    Fault(
        "stuck_io",
        "the rank blocks in open(), as on a dead mount",
        spoken("slow_rank", "reading the sample index", "unknown_timeout", "dataloader"),
    ),
    Fault(
        "slow_eval",
        "the rank evaluates alone for longer than the timeout",
        spoken("slow_rank", "starting evaluation", "unknown_timeout"),
    ),
    Fault(
        "slow_save",
        "the rank saves alone for longer than the timeout",
        lenient(
            spoken("slow_rank", "Saving model checkpoint to", "unknown_timeout", phase="checkpoint"),
            "mid_training",
        ),
    ),
    Fault("mismatch_op", "the rank calls broadcast where the others call all_reduce", mismatch),
    Fault("mismatch_size", "the rank reduces 1024 numbers where the others reduce one", mismatch),
    Fault("mismatch_dtype", "the rank reduces float64 where the others reduce float32", mismatch),
    Fault("extra_barrier", "the rank calls a barrier that the others do not", mismatch),
    Fault(
        "unused",
        "the rank leaves a block out of forward",
        unused,
        ("ddp",),
        because="only DDP tells; elsewhere it is zero3_branch or a plain mismatch",
    ),
    Fault(
        "zero3_branch",
        "the rank leaves a block out of forward, so it gathers other parameters",
        other_branch,
        ("zero3", "fsdp1-full_shard", "fsdp2"),
        because="parameters must be gathered module by module",
    ),
    Fault(
        "sys_exit",
        "the rank leaves with sys.exit(0)",
        silent("unknown_exit", "uneven_inputs", "collective_mismatch"),
    ),
    Fault(
        "sys_exit_1",
        "the rank leaves with sys.exit(1), saying nothing",
        lenient(exit_only("unknown_exit", 1), statuses=("undetermined",)),
    ),
    Fault(
        "segfault",
        "the rank dereferences a null pointer, faulthandler on",
        shown_here("segfault", "Fatal Python error: Segmentation fault"),
    ),
    Fault("segfault_quiet", "the rank dereferences a null pointer, faulthandler off", exit_only("segfault", -11)),
    Fault(
        "segfault_detail",
        "DDP's constructor under TORCH_DISTRIBUTED_DEBUG=DETAIL with gloo (a bug of torch 2.13)",
        lenient(
            shown_here("segfault", "Fatal Python error: Segmentation fault", everyone=True, phase="first_collective"),
            "launch",
            "rendezvous",
        ),
        ("ddp",),
        because="it is DDP's bug",
        strikes_rank=False,
        device="cpu",
        debug="DETAIL",
    ),
    Fault(
        "sigterm",
        "one rank gets SIGTERM from outside",
        exit_only("interrupted", -15, "preempted", "unknown_exit"),
    ),
    Fault("sigint", "one rank gets SIGINT from outside", shown_here("interrupted", "KeyboardInterrupt")),
    Fault(
        "ctrl_c",
        "SIGINT to the launcher and its foreground group, as Ctrl-C sends it",
        interrupted,
        strikes_rank=False,
        external=("SIGINT", "group"),
    ),
    Fault(
        "sigterm_launcher",
        "SIGTERM to the launcher, as a scheduler sends it",
        preempted,
        launchers=_AGENTS,
        because="other launchers die of it without a word",
        strikes_rank=False,
        external=("SIGTERM", "launcher"),
    ),
    Fault("nan", "the rank's loss becomes NaN; the script checks", shown_here("nan_loss", "loss is nan at step")),
    Fault(
        "nan_anomaly",
        "backward divides 0 by 0 under anomaly detection",
        shown_here("nan_loss", "returned nan values in its 0th output"),
    ),
    Fault(
        "import_error",
        "one rank's environment lacks a package",
        shown_here("import_error", "No module named 'flash_attn'", phase="launch"),
    ),
    Fault(
        "exit_before_init",
        "the rank leaves with sys.exit(1) before it joins",
        lenient(early_exit, "launch", "first_collective", statuses=("undetermined",)),
    ),
    Fault("key_error", "KeyError in the training loop", shown_here("user_exception", "KeyError: 'labels'")),
    Fault(
        "no_cuda",
        ".cuda() on a build without CUDA",
        shown_here("config_error", "Torch not compiled with CUDA enabled", "user_exception"),
        device="cpu",
    ),
    Fault(
        "batch_config",
        "train_batch_size does not fit micro batch, accumulation and world size",
        lenient(
            shown_here(
                "config_error",
                "train_batch_size is not equal to micro_batch_per_gpu",
                "user_exception",
                phase="launch",
                everyone=True,
            ),
            "rendezvous",
            "first_collective",
            "unknown",
        ),
        ("zero",),
        because="it is DeepSpeed's configuration",
        strikes_rank=False,
    ),
    Fault("disk_full", "the checkpoint's disk is a 64 KB tmpfs", disk_full, needs_mount=True, strikes_rank=False),
    Fault(
        "disk_full_errno",
        "the checkpoint goes to /dev/full, where every write fails with ENOSPC",
        shown_here("disk_full", "No space left on device", "checkpoint_error", phase="checkpoint"),
    ),
    Fault(
        "checkpoint_truncated",
        "the checkpoint that one rank loads is cut in half",
        lenient(
            shown_here("checkpoint_error", "PytorchStreamReader failed reading zip archive", phase="checkpoint"),
            "launch",
            "first_collective",
        ),
    ),
    Fault(
        "checkpoint_shape",
        "the checkpoint that one rank loads has another vocabulary",
        lenient(
            shown_here("checkpoint_error", "size mismatch for head.weight", "shape_mismatch", phase="checkpoint"),
            "launch",
            "first_collective",
        ),
    ),
    Fault(
        "checkpoint_missing",
        "the checkpoint that one rank loads is not there",
        lenient(
            shown_here("checkpoint_error", "No such file or directory", "user_exception", phase="checkpoint"),
            "launch",
            "first_collective",
        ),
    ),
    Fault(
        "late_join",
        "one rank sleeps before it joins the process group",
        lenient(
            shown_here(
                "rendezvous",
                "wait timeout after",
                "missing_node",
                "slow_rank",
                "unknown_timeout",
                phase="rendezvous",
            ),
            "first_collective",
            "launch",
        ),
    ),
    Fault(
        "barrier_timeout",
        "one rank does not reach a monitored barrier",
        lenient(barrier, "first_collective"),
        backend="gloo",
    ),
    Fault(
        "wrong_interface",
        "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME of one rank names no interface",
        wrong_interface,
    ),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in (*RANK_FAULTS, *LAUNCH_FAULTS, *GPU_FAULTS)}


def refuse(plan: Plan) -> str | None:
    """Why this plan makes no sense, in one sentence; None when it does."""
    fault = FAULTS.get(plan.fault)
    if fault is None:
        return f"unknown fault {plan.fault!r}; `logforensics reproduce --list` names them"
    return refuse_shape(plan) or fault.refuse(plan)
