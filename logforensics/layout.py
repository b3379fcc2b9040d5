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


# torch/distributed/elastic/multiprocessing/api.py: <log_dir>/<rdzv_id>_<random>/attempt_<n>/<local rank>/<stream>.log
_TORCHRUN = regex.compile(
    r"(?:^|/)(?P<group>[^/]+)/attempt_(?P<attempt>\d+)/(?P<local_rank>\d+)/(?P<file>stdout\.log|stderr\.log|error\.json)"
    r"(?:\.gz|\.zst)?$"
)
_TORCHRUN_BARE = regex.compile(
    r"(?:^|/)attempt_(?P<attempt>\d+)/(?P<local_rank>\d+)/(?P<file>std(?:out|err)\.log|error\.json)$"
)
# deepspeed/launcher/launch.py --enable_each_rank_log: <time>_rank<global>.log; and what people name theirs
_RANK_FILE = regex.compile(r"(?:^|[/_.-])rank[_.-]?(?P<rank>\d{1,6})(?=[_.-]|$)", regex.IGNORECASE)
# Open MPI --output-filename: <dir>/<job>/rank.<rank>/stdout
_MPI_RANK = regex.compile(r"(?:^|/)rank\.0*(?P<rank>\d+)/std(?:out|err)$")
_NODE = regex.compile(r"(?:^|[/_.-])node[_-]?(?P<node>\d{1,5})(?=[/_.-]|$)", regex.IGNORECASE)
_HOST = regex.compile(r"(?:^|[/])(?:dmesg|kern|journal|syslog)[_.-](?P<node>[a-z][\w-]*\d)(?=[_.]|$)", regex.IGNORECASE)
_KERNEL = regex.compile(r"(?:^|[/_.-])(?:dmesg|kern(?:el)?|kmsg)(?=[/_.-]|$)", regex.IGNORECASE)
_LAUNCHER = regex.compile(r"(?:^|/)(?:launcher|torchrun|agent)\.(?:err|out|log)$")


def hints_of(name: str) -> Hints:
    """Return what the relative path ``name`` (with ``!`` inside archives) says of its writer."""
    path = name.replace("!", "/")
    hints = Hints(group=path.rpartition("/")[0])
    if node := _NODE.search(path):
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
    last = path.rpartition("/")[2]
    if _KERNEL.search(last):
        hints.stream = "kernel"
    elif _LAUNCHER.search(path):
        hints.stream = "launcher"
    elif last.endswith((".out", "stdout", "stdout.log")):
        hints.stream = "stdout"
    return hints
