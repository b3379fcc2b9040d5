"""What a file's path says about who wrote it: launchers' and schedulers' own layouts.

Only what the layout guarantees is taken: torchrun's folders are *local* ranks, so no global rank is read
from them; a number that may count nodes, tasks or ranks is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import regex


@dataclass(slots=True)
class Hints:
    """What the path tells. ``group`` is the folder of one launcher's run: local ranks are unique inside it."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    attempt: int | None = None
    stream: str | None = None
    group: str = ""
    one_process: bool = False  # one process writes this file, whichever rank it is
    task: int | None = None  # the file's number among its like: a rank, or a node where each runs a launcher


# torch/distributed/elastic/multiprocessing/api.py: <log_dir>/<rdzv_id>_<random>/attempt_<n>/<local rank>/<stream>.log
_TORCHRUN = regex.compile(
    r"(?:^|/)(?P<group>[^/]+)/attempt_(?P<attempt>\d{1,4})/(?P<local_rank>\d{1,4})/(?P<file>stdout\.log|stderr\.log|error\.json)"
    r"(?:\.gz|\.zst)?$"
)
_TORCHRUN_BARE = regex.compile(
    r"(?:^|/)attempt_(?P<attempt>\d{1,4})/(?P<local_rank>\d{1,4})/(?P<file>std(?:out|err)\.log|error\.json)$"
)
# deepspeed/launcher/launch.py --enable_each_rank_log: <time>_rank<global>.log; and what people name theirs
_RANK_FILE = regex.compile(r"(?:^|[/_.-])rank[_.-]?(?P<rank>\d{1,6})(?=[_.-]|$)", regex.IGNORECASE)
# Open MPI --output-filename: <dir>/<job>/rank.<rank>/stdout
_MPI_RANK = regex.compile(r"(?:^|/)rank\.0*(?P<rank>\d{1,6})/std(?:out|err)$")
# W&B keeps what the process that called wandb.init printed.
_WANDB = regex.compile(r"(?:^|/)(?:offline-)?run-[^/]+/files/output\.log$")
_NODE = regex.compile(r"(?:^|[/_.-])node[_-]?(?P<node>\d{1,5})(?=[/_.-]|$)", regex.IGNORECASE)
_HOST = regex.compile(r"(?:^|[/])(?:dmesg|kern|journal|syslog)[_.-](?P<node>[a-z][\w-]*\d)(?=[_.]|$)", regex.IGNORECASE)
_KERNEL = regex.compile(r"(?:^|[/_.-])(?:dmesg|kern(?:el)?|kmsg)(?=[/_.-]|$)", regex.IGNORECASE)
# PRRTE --output dir=: <dir>/<namespace>@<job>/<rank>/stdout (the namespace holds the name of mpirun's own host)
_PRTE_RANK = regex.compile(r"(?:^|/)[^/]+@\d{1,6}/(?P<rank>\d{1,6})/std(?:out|err|diag)$")
_LAUNCHER = regex.compile(r"(?:^|/)(?:launcher|torchrun|agent)\.(?:err|out|log)$")
# Slurm's --error=error-%j-%n.out, as many scripts have it
_ERROR_OUT = regex.compile(r"(?:^|/)err(?:or)?[-_.][^/]*$", regex.IGNORECASE)


# One writer's number in a file name, as in "job.17.3.err"; a rotated "train.log.1" is no writer's.
_NUMBERED = regex.compile(r"\d{1,6}")
_ROTATED = regex.compile(r"\.(?:log|out|txt)\.\d{1,3}$")


def number_siblings(hints: dict[str, Hints]) -> None:
    """Give files whose names differ in one number, counted from 0, that number as their task.

    ``hints`` maps relative paths to what is known of them; files of a known rank, local rank or node are left alone.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for name, known in hints.items():
        folder, _, last = name.replace("!", "/").rpartition("/")
        if known.node or known.rank is not None or known.local_rank is not None or _ROTATED.search(last):
            continue
        for match in _NUMBERED.finditer(last):
            shape = f"{folder}/{last[: match.start()]}#{last[match.end() :]}"
            groups.setdefault(shape, []).append((int(match[0]), name))
    for members in groups.values():
        numbers = sorted(number for number, _ in members)
        if len(numbers) > 1 and numbers == list(range(len(numbers))):
            for number, name in members:
                hints[name].task = number


def hints_of(name: str) -> Hints:
    """Return what the relative path ``name`` (with ``!`` inside archives) says of its writer."""
    path = name.replace("!", "/")
    hints = Hints(group=path.rpartition("/")[0])
    prte = _PRTE_RANK.search(path)
    if prte:
        hints.rank = int(prte["rank"])
    elif node := _NODE.search(path):
        hints.node = "node" + node["node"]
    elif host := _HOST.search(path):
        hints.node = host["node"]
    if (match := _TORCHRUN.search(path)) or (match := _TORCHRUN_BARE.search(path)):
        hints.local_rank = int(match["local_rank"])
        hints.attempt = int(match["attempt"])
        # two nodes that share a parent folder differ in the folder above attempt_N
        hints.group = path[: path.rindex("attempt_")]
        hints.stream = {"stdout.log": "stdout", "stderr.log": "stderr"}.get(match["file"], "error_file")
        return hints
    if match := _MPI_RANK.search(path) or _RANK_FILE.search(path.rpartition("/")[2]):
        hints.rank = int(match["rank"])
    hints.one_process = _WANDB.search(path) is not None
    last = path.rpartition("/")[2]
    if _KERNEL.search(last):
        hints.stream = "kernel"
    elif _LAUNCHER.search(path):
        hints.stream = "launcher"
    elif last.endswith("stderr") or (last.endswith(".out") and _ERROR_OUT.search(last)):
        hints.stream = "stderr"
    elif last.endswith((".out", "stdout", "stdout.log")):
        hints.stream = "stdout"
    return hints
