"""Turns a plan into the commands that people type.

Nothing is started here. A launch fault is a wrong value in these commands; everything else is as the
launchers' own documentation has it.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logforensics.harness.plan import Plan

SCRIPT = Path(__file__).with_name("train.py")
NOWHERE = "192.0.2.10"  # RFC 5737: an address that belongs to nobody


@dataclass(frozen=True)
class Task:
    """One command to start, and where its output goes."""

    argv: tuple[str, ...]
    node: int
    label: str
    """What the wrapped layouts write in front of its lines."""
    environment: dict[str, str] = field(default_factory=dict)
    host: str = ""
    """The host name to give it, where namespaces allow."""


@dataclass(frozen=True)
class Launch:
    """All that has to be started for one run, and the files that must exist before."""

    tasks: tuple[Task, ...]
    files: dict[str, str] = field(default_factory=dict)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tool(name: str) -> str:
    """A launcher of the environment that this program runs in."""
    return str(Path(sys.executable).with_name(name))


def base_environment(plan: Plan, work: Path) -> dict[str, str]:
    """What every process of the run gets, on top of the harness's own environment."""
    values = {
        "LOGFORENSICS_PLAN": str(work / "plan.json"),
        "LOGFORENSICS_RUN": work.name,  # how the harness finds its own processes again
        "PYTHONPATH": str(SCRIPT.parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(work / "tmp"),
        "TORCH_EXTENSIONS_DIR": str(work / "tmp" / "extensions"),
        "TRITON_CACHE_DIR": str(work / "tmp" / "triton"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
    }
    if plan.device == "cpu":
        values |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true"}
    if plan.debug:
        values["TORCH_DISTRIBUTED_DEBUG"] = plan.debug
    if plan.cpp_log:
        values["TORCH_CPP_LOG_LEVEL"] = plan.cpp_log
    if plan.nccl_debug:
        values["NCCL_DEBUG"] = plan.nccl_debug
    if plan.flight_recorder:
        values["TORCH_FR_BUFFER_SIZE"] = "64"
    if plan.flight_recorder and plan.backend == "nccl":
        values["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"
        values["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = str(work / "logs" / "nccl_trace_rank_")
    return values


def prepare(plan: Plan, work: Path, port: int) -> Launch:
    """The commands of the plan. ``port`` is free unless the fault says otherwise."""
    makers: dict[str, Callable[[Plan, Path, int], Launch]] = {
        "torchrun": _torchrun,
        "accelerate": _accelerate,
        "deepspeed": _deepspeed,
        "spawn": _spawn,
        "processes": _processes,
    }
    launch = makers[plan.launcher](plan, work, port)
    tasks = launch.tasks[:-1] if plan.fault == "missing_node" else launch.tasks
    files = launch.files
    if plan.nnodes > 1:
        names = " ".join(f"node{node}" for node in range(plan.nnodes))
        files = {**files, "hosts": f"127.0.0.1 localhost {names}\n::1 localhost\n"}
    return Launch(tasks, files)


def _label(plan: Plan, node: int) -> str:
    return {"srun": f"{node}: ", "kubectl": f"[pod/train-worker-{node}/pytorch] "}.get(plan.layout, "")


def _log_options(plan: Plan, work: Path, node: int) -> list[str]:
    folder = work / "logs" / (f"node{node}/ranks" if plan.nnodes > 1 else "ranks")
    if plan.layout == "logdir":
        return ["--log-dir", str(folder), "--redirects", "3"]
    return ["--tee", "3"] if plan.layout == "tee" else []


def _address(plan: Plan) -> str:
    if plan.fault == "wrong_address":
        return NOWHERE
    return "node-0.train.invalid" if plan.fault == "bad_host" else "127.0.0.1"


def _machine_rank(plan: Plan, node: int) -> int:
    return 0 if plan.fault == "duplicate_machine_rank" else node


def _rendezvous_wait(plan: Plan) -> str:
    seconds = int(plan.timeout)
    return f"join_timeout={seconds},timeout={seconds},read_timeout={seconds}"


def _torchrun(plan: Plan, work: Path, port: int) -> Launch:
    tasks = []
    for node in range(plan.nnodes):
        argv = [tool("torchrun"), f"--nnodes={plan.nnodes}", f"--nproc-per-node={plan.nproc}"]
        if plan.restarts:
            argv += ["--standalone", f"--max-restarts={plan.restarts}"]
        elif plan.rdzv == "c10d":
            argv += ["--rdzv-backend=c10d", f"--rdzv-endpoint={_address(plan)}:{port}", "--rdzv-id=job7"]
            argv += [f"--rdzv-conf={_rendezvous_wait(plan)}", "--local-addr=127.0.0.1"]
        else:
            argv += [f"--node-rank={_machine_rank(plan, node)}", f"--master-addr={_address(plan)}"]
            argv += [f"--master-port={port}"]
            if plan.nnodes > 1:
                argv += [f"--rdzv-conf=timeout={int(plan.timeout)}"]
        argv += [*_log_options(plan, work, node), str(SCRIPT)]
        tasks.append(Task(tuple(argv), node, _label(plan, node), host=f"node{node}"))
    return Launch(tuple(tasks))


def accelerate_config(plan: Plan, node: int, port: int) -> str:
    """The YAML that ``accelerate config`` would have written on this machine."""
    rdzv = plan.rdzv or "static"
    return (
        "compute_environment: LOCAL_MACHINE\n"
        "debug: false\n"
        "distributed_type: MULTI_GPU\n"
        "downcast_bf16: 'no'\n"
        "enable_cpu_affinity: false\n"
        f"machine_rank: {_machine_rank(plan, node)}\n"
        f"main_process_ip: {_address(plan)}\n"
        f"main_process_port: {port}\n"
        "main_training_function: main\n"
        "mixed_precision: 'no'\n"
        f"num_machines: {plan.nnodes}\n"
        f"num_processes: {plan.world}\n"
        f"rdzv_backend: {rdzv}\n"
        "same_network: true\n"
        "tpu_env: []\n"
        "use_cpu: false\n"
    )


def _accelerate(plan: Plan, work: Path, port: int) -> Launch:
    tasks, files = [], {}
    for node in range(plan.nnodes):
        name = f"accelerate-node{node}.yaml"
        files[name] = accelerate_config(plan, node, port)
        argv = [tool("accelerate"), "launch", "--config_file", str(work / name)]
        if plan.rdzv == "c10d":
            argv += ["--rdzv_backend", "c10d"]  # accelerate does not take this one from the file
        if plan.nnodes > 1:
            argv += ["--rdzv_conf", _rendezvous_wait(plan)]
        if plan.layout == "logdir":
            folder = work / "logs" / (f"node{node}/ranks" if plan.nnodes > 1 else "ranks")
            argv += ["--tee", "3", "--log_dir", str(folder)]
        if plan.layout == "tee":
            argv += ["--tee", "3"]
        tasks.append(Task((*argv, str(SCRIPT)), node, _label(plan, node), host=f"node{node}"))
    return Launch(tuple(tasks), files)


def _deepspeed(plan: Plan, work: Path, port: int) -> Launch:
    tasks, files = [], {}
    for node in range(plan.nnodes):
        argv = [tool("deepspeed")]
        if plan.nnodes > 1:
            hosts = ["localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3"][: plan.nnodes]
            files["hostfile"] = "".join(f"{host} slots={plan.nproc}\n" for host in hosts)
            argv += ["--hostfile", str(work / "hostfile"), "--no_ssh", "--num_nodes", str(plan.nnodes)]
            argv += ["--node_rank", str(node)]
        argv += [
            "--num_accelerators",
            str(plan.nproc),
            "--master_addr",
            "127.0.0.1",
            "--master_port",
            str(port),
        ]
        if plan.layout == "per_rank":
            argv += ["--enable_each_rank_log", str(work / "logs" / "ranks")]
        tasks.append(Task((*argv, str(SCRIPT)), node, "", host=""))
    return Launch(tuple(tasks), files)


def _spawn(plan: Plan, work: Path, port: int) -> Launch:
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return Launch((Task((sys.executable, str(SCRIPT)), 0, "", environment),))


def _processes(plan: Plan, work: Path, port: int) -> Launch:
    tasks = []
    for rank in range(plan.world):
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % plan.nproc),
            "WORLD_SIZE": str(plan.world),
            "LOCAL_WORLD_SIZE": str(plan.nproc),
        }
        label = {
            "srun": f"{rank:{len(str(plan.world - 1))}d}: ",
            "mpirun": f"[1,{rank}]<{{stream}}>:",
            "ray": "\x1b[36m(RayTrainWorker pid={pid}"
            + (f", ip=10.0.0.{7 + rank // plan.nproc}" * (rank >= plan.nproc))
            + ")\x1b[0m ",
        }.get(plan.layout, "")
        node = rank // plan.nproc
        tasks.append(Task((sys.executable, "-u", str(SCRIPT)), node, label, environment))
    return Launch(tuple(tasks))


@functools.cache
def can_unshare() -> bool:
    """Whether this user may make mount and host-name namespaces (root, outside a locked-down container)."""
    if os.geteuid() != 0:
        return False
    try:
        done = subprocess.run(["unshare", "-m", "-u", "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def namespaced(plan: Plan, task: Task, work: Path) -> tuple[str, ...]:
    """The task's command inside the namespaces that its fault or its node's host name needs."""
    mounts = []
    if plan.fault == "shm_full":
        mounts.append("mount -t tmpfs -o size=3m tmpfs /dev/shm")
    if plan.fault == "disk_full":
        mounts.append(f"mkdir -p {work}/checkpoints && mount -t tmpfs -o size=64k tmpfs {work}/checkpoints")
    if plan.nnodes > 1 and task.host and can_unshare():  # each node its own name; else they share one
        mounts.append(f"hostname {task.host} && mount --bind {work}/hosts /etc/hosts")
    if not mounts:
        return task.argv
    return ("unshare", "-m", "-u", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *task.argv)
