"""The vocabulary and the values that every other module speaks: no logic beyond small look-ups.

Imports nothing of ours. The words are contracts (README, "The timeline" and "JSON"): they may grow, but
a word never changes its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "exception",
    "timeout",
    "collective",
    "exit",
    "signal",
    "teardown",
    "init",
    "progress",
    "config",
    "hardware",
    "network",
    "memory",
    "notice",
)

# What an event can be in the story of a failure.
#   cause: a failure in its own right; either: the correlator decides; symptom: another's failure shows here;
#   pointer: says who or where; teardown: healthy parts being stopped; progress: a sign of life;
#   context: a fact about the run; noise: looks scary, means nothing.
ROLES = ("cause", "either", "symptom", "pointer", "teardown", "progress", "context", "noise")

CATEGORIES = (
    "cuda_oom",
    "host_oom",
    "shape_mismatch",
    "dataloader",
    "device_assert",
    "illegal_memory_access",
    "nan_loss",
    "import_error",
    "config_error",
    "user_exception",
    "checkpoint_error",
    "disk_full",
    "hub_download",
    "segfault",
    "collective_mismatch",
    "uneven_inputs",
    "slow_rank",
    "unused_parameters",
    "zero_mismatch",
    "rendezvous",
    "missing_node",
    "barrier_timeout",
    "network_interface",
    "network_fabric",
    "gpu_hardware",
    "duplicate_gpu",
    "version_mismatch",
    "driver_mismatch",
    "preempted",
    "interrupted",
    "unknown_timeout",
    "unknown_exit",
    "no_failure",
)

PHASES = (
    "launch",
    "rendezvous",
    "first_collective",
    "mid_training",
    "epoch_end",
    "checkpoint",
    "shutdown",
    "unknown",
)

FATES = ("origin", "timed_out", "peer_lost", "torn_down", "silent", "finished", "not_started", "unknown")
STATUSES = ("diagnosed", "undetermined", "no_failure")
CONFIDENCES = ("high", "medium", "low")
STREAMS = (
    "stdout",
    "stderr",
    "launcher",
    "nccl",
    "scheduler",
    "kernel",
    "flight_recorder",
    "error_file",
    "config",
)
TIME_BASES = ("stamped", "derived", "bracketed", "none")

# What a process was doing: said by a line ("Saving model checkpoint to ...") or by the frames of a traceback.
ACTIVITIES = (
    "launch",  # launcher, argument parsing, imports
    "restart",  # a launcher starts all processes again
    "rendezvous",  # agents looking for each other, the store being set up
    "init",  # process group, communicator or wrapper (DDP, FSDP, ZeRO) being built
    "model_load",  # weights being read or the model being built
    "download",  # a hub or the web being asked
    "data_preparation",  # tokenising, splitting, caching a dataset
    "data_loading",  # the input pipeline: dataset, collate, worker
    "training",  # forward, backward, optimizer
    "evaluation",
    "checkpoint_save",
    "checkpoint_load",
    "epoch_end",  # the loop over batches is over
    "barrier",  # waiting for the others on purpose
    "compile",  # torch.compile, JIT extensions, autotuning
    "working",  # a counter went on; of what is not known
    "shutdown",  # the work is done, cleaning up
    "finished",  # the process said that it is done
)

# The closed list of names that a pattern may capture, and the type of each. Three ranks are kept apart on
# purpose: `rank` is always global, `local_rank` counts inside a node, `group_rank` inside a process group.
FIELDS: dict[str, type] = {
    # who
    "rank": int,
    "local_rank": int,
    "group_rank": int,
    "node_rank": int,
    "task": int,  # a scheduler's task number: a rank, or a node when each node has one launcher
    "peer_rank": int,
    "host": str,
    "pid": int,
    "tid": int,
    "device": int,
    "role_name": str,
    "world_size": int,
    "local_world_size": int,
    "joined": int,  # how many members had arrived
    "nodes": int,
    "ranks": str,  # a list of ranks as text: "4, 5, 6"
    "absent_ranks": str,  # ranks that the line says never arrived, or lag
    # when
    "time": str,
    "elapsed_ms": int,
    "timeout_ms": int,
    "elapsed_s": float,
    "timeout_s": float,
    "restart": int,
    # collectives
    "pg_id": str,
    "pg": str,
    "seq": int,
    "op": str,
    "peer_op": str,
    "numel_in": int,
    "numel_out": int,
    "shape": str,
    "dtype": str,
    "enqueued": int,
    "started": int,
    "completed": int,
    # progress
    "step": int,
    "total": int,
    "epoch": float,
    "percent": float,
    "loss": str,
    "samples": int,
    # failures
    "exc": str,
    "exitcode": int,
    "signal": str,
    "severity": str,
    "detail": str,
    "reason": str,
    "worker": str,
    "key": str,
    "name": str,
    "value": str,
    "other_value": str,
    "version": str,
    "path": str,
    "target_path": str,
    "line_no": int,
    "function": str,
    "command": str,
    # memory
    "tried": str,
    "capacity": str,
    "free": str,
    "allocated": str,
    "reserved": str,
    "in_use": str,
    "bytes": int,
    "memory_mb": float,
    # network and hardware
    "address": str,
    "port": int,
    "interface": str,
    "errno": int,
    "status": str,
    "vendor_error": str,
    "hca": str,
    "xid": int,
    "bus_id": str,
    "job": str,
    "constraint": str,
    "scale": str,
    "next_scale": str,
}


@dataclass(slots=True)
class Event:
    """One thing that a log says. The row of the timeline before it becomes a row.

    ``time_us`` is microseconds since the epoch on the run's clock, ``time_error_us`` the half-width of its
    uncertainty. ``fields`` holds every captured field that has no column of its own, plus ``activity``,
    ``where`` and ``chained`` where the parser found them. ``event_id`` is set by the timeline. ``told`` keeps
    how the identity is known: the names of columns that the message itself states ("rank", "pid",
    "local_rank", "host"), "mark" for torch's own [rankN]:, "group" for a world group's rank. ``section`` numbers the
    logs that were put together into one file; between two of them the file's order says nothing.
    """

    source: str
    line: int
    end_line: int
    offset: int
    kind: str
    signature: str
    role: str
    message: str
    category: str | None = None
    stream: str = "stderr"
    attempt: int = 0
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    time_us: int | None = None
    time_basis: str = "none"
    time_error_us: int = 0
    process_group: str | None = None
    sequence: int | None = None
    operation: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    repeats: int = 1
    event_id: int = -1
    told: set[str] = field(default_factory=set)
    section: int = 0


@dataclass(slots=True)
class Evidence:
    """A place in a log that a claim rests on. ``text`` is the line as the log has it."""

    source: str
    line: int
    end_line: int
    text: str
    rank: int | None = None
    node: str | None = None
    time_us: int | None = None
    event_id: int = -1


@dataclass(slots=True)
class Alternative:
    """An explanation that was considered and found less likely, with the reason."""

    category: str
    ranks: list[int]
    why_less_likely: str


@dataclass(slots=True)
class Remedy:
    """What to do about a cause: steps in words, commands to copy."""

    id: str
    title: str
    steps: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change. ``supports`` holds the categories of failure that it can explain."""

    source: str
    line: int
    text: str
    supports: frozenset[str] = frozenset()

    @property
    def told(self) -> str:
        """The advice with its place."""
        return f"{self.source}:{self.line}: {self.text}"


@dataclass(slots=True)
class Ruling:
    """What one rule of the correlator said. ``decided``: the verdict is its; the others support it or were outvoted."""

    rule: str
    said: str
    ranks: list[int] = field(default_factory=list)
    decided: bool = False


@dataclass(slots=True)
class Verdict:
    """The answer. ``ranks`` is empty when no rank is to blame, or when the log does not establish one.

    ``advice`` is what the configuration files call for, whatever failed. ``rulings`` holds what every rule said that
    spoke at all, the one that decided first.
    """

    status: str
    category: str
    ranks: list[int]
    nodes: list[str]
    phase: str
    confidence: str
    headline: str
    explanation: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    rulings: list[Ruling] = field(default_factory=list)

    @property
    def rules(self) -> list[str]:
        """The names of the rules that spoke, each once, the one that decided first."""
        return list(dict.fromkeys(ruling.rule for ruling in self.rulings))


@dataclass(slots=True)
class AttemptVerdict:
    """What became of one attempt of a run that was started again. Times are microseconds since the epoch."""

    number: int
    status: str
    category: str
    ranks: list[int]
    phase: str
    confidence: str
    headline: str
    evidence: Evidence | None = None
    start_us: int | None = None
    end_us: int | None = None
    last_step: int | None = None


@dataclass(slots=True)
class RankState:
    """What is known of one rank at the end: its fate and its last signs of life."""

    rank: int
    node: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    fate: str = "unknown"
    last_step: int | None = None
    last_seen_us: int | None = None
    last_activity: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    first_exception: int | None = None  # event_id
    why: str = ""


@dataclass(slots=True)
class CollectiveState:
    """A collective that got stuck: who waits in it, who never came, who came with something else."""

    process_group: str | None
    sequence: int | None
    operation: str | None
    waiting: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    mismatched: list[dict[str, Any]] = field(default_factory=list)
    issued_us: int | None = None


@dataclass(slots=True)
class ChainLink:
    """One step of the causal chain: what happened, and because of what."""

    event_id: int
    rank: int | None
    time_us: int | None
    what: str
    because: str


@dataclass(slots=True)
class Note:
    """Something that was skipped or could not be read, in one line a person can act on."""

    source: str
    what: str
