"""Synthetic token shards on disk, and the DataLoader over them.

The harness writes the shards, and spoils them, before the run: that part needs no torch.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from logforensics.harness.inject import mark_struck
from logforensics.harness.model import SEQUENCE, VOCABULARY
from logforensics.harness.plan import Plan

_SAMPLE_FAULTS = ("dl_exception", "dl_kill", "dl_segfault", "dl_hang", "collate")
_FILE_FAULTS = ("missing_file", "corrupt_file", "truncated_file")
BATCH = 4
PER_SHARD = 8


def shard_path(folder: Path, number: int) -> Path:
    """Where shard ``number`` lies."""
    return folder / f"shard-{number:05d}.json.gz"


def write_shards(plan: Plan, folder: Path) -> None:
    """Write the run's data: sequences of random tokens, eight to a gzipped JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(plan.seed)
    samples = plan.steps_per_epoch * plan.accumulate * BATCH * plan.world
    for number in range(-(-samples // PER_SHARD)):
        rows = [[draw.randrange(VOCABULARY) for _ in range(SEQUENCE + 1)] for _ in range(PER_SHARD)]
        shard_path(folder, number).write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))


def struck_index(plan: Plan) -> int:
    """The first sample that the guilty rank reads for the fault's step (the sampler does not shuffle)."""
    return plan.at_step * plan.accumulate * BATCH * plan.world + plan.rank


def spoil_shards(plan: Plan, folder: Path) -> None:
    """Remove, cut or overwrite the shard that holds the struck sample, as the fault says."""
    victim = shard_path(folder, struck_index(plan) // PER_SHARD)
    if plan.fault == "missing_file":
        victim.unlink()
    elif plan.fault == "truncated_file":
        victim.write_bytes(victim.read_bytes()[:-40])
    elif plan.fault == "corrupt_file":
        victim.write_bytes(b"<html>502 Bad Gateway</html>\n" * 8)


def build_loader(plan: Plan, rank: int, folder: Path) -> Any:
    """The rank's DataLoader, with the input faults built in where the plan puts one on this rank."""
    torch: Any = importlib.import_module("torch")
    data: Any = importlib.import_module("torch.utils.data")
    here = rank == plan.rank
    struck = struck_index(plan) if here else -1
    wide_from = struck if plan.fault == "shm_full" and here else None

    class TokenShards(data.Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.length = plan.steps_per_epoch * plan.accumulate * BATCH * plan.world

        def __len__(self) -> int:
            return self.length

        def read(self, index: int) -> list[int]:
            path = shard_path(folder, index // PER_SHARD)
            if index == struck and plan.fault in _FILE_FAULTS:
                mark_struck()
            with gzip.open(path, "rt") as stream:
                rows: list[list[int]] = json.load(stream)
            return rows[index % PER_SHARD]

        def __getitem__(self, index: int) -> Any:
            tokens = self.read(index)
            if index == struck:
                tokens = self.clean(tokens, index)
            row = torch.tensor(tokens, dtype=torch.long)
            wide = wide_from is not None and index >= wide_from  # the long-context stage of the data
            if wide:
                mark_struck()
            return row.repeat(2048) if wide else row

        def clean(self, tokens: list[int], index: int) -> list[int]:
            if plan.fault in _SAMPLE_FAULTS:
                mark_struck()
            match plan.fault:
                case "dl_exception":
                    raise ValueError(f"sample {index} in shard-{index // PER_SHARD:05d} has no end-of-text token")
                case "dl_kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "dl_segfault":
                    import ctypes

                    ctypes.string_at(0)
                case "dl_hang":
                    time.sleep(600)
                case "collate":
                    return tokens[:-1]
            return tokens

    dataset = TokenShards()
    sampler: Any = data.DistributedSampler(dataset, plan.world, rank, shuffle=False, drop_last=True)
    if plan.fault == "uneven" and here:
        mark_struck()
        kept = (plan.steps_per_epoch - 2) * plan.accumulate * BATCH  # a filter that differs by rank
        sampler = list(sampler)[:kept]
    return data.DataLoader(
        dataset,
        batch_size=BATCH,
        sampler=sampler,
        num_workers=2 if plan.world <= 2 else 1,
        pin_memory=plan.device == "cuda",
        multiprocessing_context="fork" if plan.launcher == "spawn" else None,
    )
