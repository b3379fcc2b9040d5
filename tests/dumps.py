"""Builds flight recorder dumps as torch writes them (torch/csrc/distributed/c10d/FlightRecorder*.hpp)."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# 2026-09-21 12:00:00 UTC
START_NS = 1_789_992_000 * 1_000_000_000
TRAIN = {"name": "train_epoch", "filename": "/home/user/project/train.py", "line": 113}
# The recorder has the innermost frame first.
BACKWARD = [
    {"name": "_engine_run_backward", "filename": "/opt/venv/site-packages/torch/autograd/graph.py", "line": 979},
    TRAIN,
]
SAVE = [
    {"name": "save", "filename": "/opt/venv/site-packages/torch/serialization.py", "line": 651},
    {"name": "save_checkpoint", "filename": "/home/user/project/train.py", "line": 150},
]


def call(
    sequence: int,
    operation: str = "all_reduce",
    *,
    state: str = "completed",
    retired: bool | None = None,
    size: int = 1024,
    dtype: str = "Float",
    group: tuple[str, str] = ("0", "default_pg"),
    p2p: int | None = None,
    backend: str = "nccl",
    second: float | None = None,
    frames: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """One entry of torch 2.13. A call is watched until it completed, unless ``retired`` says otherwise."""
    created = START_NS + int((sequence if second is None else second) * 1_000_000_000)
    done = state == "completed"
    return {
        "frames": BACKWARD if frames is None else frames,
        "record_id": sequence - 1,
        "pg_id": 0,
        "process_group": group,
        "thread_name": "python",
        "thread_id": "1",
        "collective_seq_id": 0 if p2p else sequence,
        "p2p_seq_id": p2p or 0,
        "op_id": sequence,
        "profiling_name": f"{backend}:{operation}",
        "time_created_ns": created,
        "input_sizes": [[size]],
        "input_dtypes": [dtype],
        "output_sizes": [[size]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": created + 1000 if state != "scheduled" else None,
        "time_discovered_completed_ns": created + 2000 if done else None,
        "retired": done if retired is None else retired,
        "timeout_ms": 600000,
        "is_p2p": p2p is not None,
    }


def done(*sequences: int, **options: Any) -> list[dict[str, Any]]:
    """Completed calls with these numbers."""
    return [call(number, **options) for number in sequences]


def dump(
    calls: Iterable[dict[str, Any]],
    ranks: Iterable[int] | None = None,
    *,
    groups: Mapping[str, tuple[str, list[int]]] | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """The table of one rank. ``ranks`` are those of the default group; ``groups`` adds others: name -> (desc, ranks)."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(ranks))}} if ranks is not None else {}
    for name, (description, members) in (groups or {}).items():
        config[name] = {"name": name, "desc": description, "ranks": str(members)}
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.21.5", "entries": list(calls), **keys}


def write(folder: Path, tables: Mapping[int, Any], prefix: str = "nccl_trace_rank_", protocol: int = 2) -> Path:
    """Write one pickled dump for each rank, as torch names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, table in tables.items():
        (folder / f"{prefix}{rank}").write_bytes(pickle.dumps(table, protocol))
    return folder
