"""Many runs: reads a matrix (data in TOML), says which of its runs make sense, makes them a few at a time.

One run needs two cores. Each has its own port, folder, time limit and processes, so that they do not meet; a
run that breaks the harness itself is one failed row, never the end of the others.
"""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logforensics.harness.faults import FAULTS, refuse
from logforensics.harness.launch import can_unshare
from logforensics.harness.plan import STRATEGIES, Plan
from logforensics.harness.run import Outcome, run_plan
from logforensics.harness.verify import problems

MATRICES = {"cpu": "matrix_cpu.toml", "one-gpu": "matrix_one_gpu.toml", "multi-gpu": "matrix_multi_gpu.toml"}


@dataclass(frozen=True)
class Row:
    """What became of one plan."""

    plan: Plan
    state: str
    """made, wrong (the logs do not show what was injected), skipped, or broken (the harness failed)."""
    detail: str = ""
    outcome: Outcome | None = None


def read_matrix(name: str) -> list[Plan]:
    """The plans of a built-in matrix or of a TOML file; a mistake is a ValueError that names the row."""
    path = Path(__file__).with_name(MATRICES[name]) if name in MATRICES else Path(name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; built in are {', '.join(MATRICES)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    unknown = sorted(set(document) - {"defaults", "run"})
    if unknown:
        raise ValueError(f"{path}: unknown key {unknown[0]!r}; a matrix has [defaults] and run = [...]")
    defaults, rows = document.get("defaults", {}), document.get("run", [])
    if not isinstance(defaults, dict) or not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: a matrix has a table [defaults] and a list run = [{{ ... }}, ...]")
    plans: dict[str, Plan] = {}
    for number, row in enumerate(rows, 1):
        plan = _plan_of(path, number, defaults, row)
        if plan.name in plans:
            raise ValueError(f"{path}: run {number} is called {plan.name}, as one before; give it a `variant`")
        plans[plan.name] = plan
    return list(plans.values())


def _plan_of(path: Path, number: int, defaults: dict[str, Any], row: Any) -> Plan:
    if not isinstance(row, dict):
        raise ValueError(f"{path}: run {number} should be a table")
    try:
        return Plan.from_mapping({**defaults, **row})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: run {number}: {error}") from error


def unavailable(plan: Plan, gpus: int | None = None) -> str | None:
    """Why this machine cannot make the run; None when it can. ``gpus`` None: count them."""
    if FAULTS[plan.fault].needs_mount and not can_unshare():
        return f"{plan.fault} mounts a small tmpfs in a namespace of its own: needs root and unshare"
    needed = {"torch"}
    needed |= {"deepspeed"} if plan.strategy.startswith("zero") or plan.launcher == "deepspeed" else set()
    needed |= {"accelerate"} if plan.launcher == "accelerate" else set()
    absent = sorted(name for name in needed if importlib.util.find_spec(name) is None)
    if absent:
        return f"needs {', '.join(absent)}: pip install 'logforensics[harness]'"
    if plan.device == "cuda":
        have = count_gpus() if gpus is None else gpus
        need = 1 if plan.share_gpu else plan.nproc
        if have < need:
            return f"needs {need} GPU{'s' * (need > 1)}, this machine has {have}"
    return None


def count_gpus() -> int:
    """The GPUs that the driver shows; asked of the file system, so that torch stays out of this process."""
    nodes = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return max(nodes, len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))


def pairs() -> Iterator[tuple[str, str, str | None]]:
    """Every strategy with every fault, and why the pair makes no sense (None when it does)."""
    for strategy in STRATEGIES:
        for fault in FAULTS.values():
            device = fault.device or "cpu"
            world = max(fault.world, 4 if strategy == "fsdp1-hybrid_shard" else 2)
            plan = Plan(
                strategy=strategy,
                fault=fault.name,
                launcher=fault.launchers[0] if fault.launchers else "torchrun",
                device=device,
                backend=fault.backend or ("nccl" if device == "cuda" else "gloo"),
                debug=fault.debug,
                nnodes=fault.nnodes,
                nproc=max(1, world // fault.nnodes),
            )
            yield strategy, fault.name, refuse(plan)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def make_one(plan: Plan, out: Path) -> Row:
    """Make one run and look at what it wrote."""
    reason = refuse(plan) or unavailable(plan)
    if reason is not None:
        return Row(plan, "skipped", reason)
    folder = out / plan.name
    if folder.exists():
        return Row(plan, "skipped", f"{folder} exists; remove it to make it again")
    try:
        outcome = run_plan(plan, folder)
    except Exception as error:  # one broken run must not end the matrix
        return Row(plan, "broken", f"{type(error).__name__}: {error}")
    wrong = problems(folder, outcome)
    return Row(plan, "wrong" if wrong else "made", "; ".join(wrong), outcome)


def make_many(
    plans: Iterable[Plan], out: Path, jobs: int = 0, tell: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Make the runs, one per two cores at a time (or ``jobs``); ``tell`` hears of each when it is done."""
    rows = []
    with ThreadPoolExecutor(jobs or max(1, cores() // 2)) as pool:
        for future in as_completed([pool.submit(make_one, plan, out) for plan in plans]):
            rows.append(future.result())
            tell(rows[-1])
    return rows
