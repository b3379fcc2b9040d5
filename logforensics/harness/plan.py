"""What one run is to be: strategy, fault, launcher, layout, shape; for harness and script alike."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

STRATEGIES = (
    "ddp",
    "fsdp1-full_shard",
    "fsdp1-shard_grad_op",
    "fsdp1-hybrid_shard",
    "fsdp1-no_shard",
    "fsdp2",
    "zero1",
    "zero2",
    "zero3",
    "zero3_offload",
)
LAUNCHERS = {
    "torchrun": "torchrun, one agent a node",
    "accelerate": "accelerate launch with a YAML config, one a node",
    "deepspeed": "the deepspeed launcher, one a node",
    "spawn": "torch.multiprocessing.spawn from the script itself",
    "processes": "one plain process a rank with RANK and WORLD_SIZE set, as srun, mpirun and Ray start them",
}
LAYOUTS = {
    "logdir": "torchrun --log-dir with --redirects 3: a folder a rank",
    "tee": "torchrun --tee 3: ranks interleaved on the console behind [default0]:",
    "combined": "everything in one file",
    "per_rank": "one file a rank",
    "srun": "one file, each line behind its task number, as srun --label writes it",
    "mpirun": "one file, each line behind [1,RANK]<stream>:, as mpirun --tag-output writes it",
    "kubectl": "one file, each line behind [pod/NAME/CONTAINER], as kubectl logs --prefix writes it",
    "ray": "one file, each line behind (NAME pid=PID), as Ray's driver writes it",
}
WRAPPED = ("srun", "mpirun", "kubectl", "ray")
DIALECTS = {
    "print": "print() on every rank",
    "logging-timed": "logging with times on every rank",
    "logging-plain": "logging without times on every rank",
    "tqdm": "a tqdm bar on every rank, messages with tqdm.write",
    "trainer": "transformers' Trainer: dicts and banners on rank 0 only",
    "megatron": "Megatron's iteration line on the last rank, messages on rank 0",
}
# Which launchers can write which layout; the others have no such option or no process to label.
LAYOUTS_OF = {
    "torchrun": ("logdir", "tee", "combined", "per_rank", "srun", "kubectl"),
    "accelerate": ("logdir", "tee", "combined", "per_rank", "kubectl"),
    "deepspeed": ("combined", "per_rank"),
    "spawn": ("combined", "per_rank"),
    "processes": ("combined", "per_rank", "srun", "mpirun", "ray"),
}


@dataclass(frozen=True)
class Plan:
    """One run to be made. Equal plans give equal truths and logs of equal shape."""

    strategy: str = "ddp"
    fault: str = "none"
    launcher: str = "torchrun"
    layout: str = "logdir"
    nproc: int = 2
    """Ranks a node."""
    nnodes: int = 1
    rank: int = 1
    """The rank that the fault is injected on (global)."""
    at_step: int = 3
    """The optimizer step, counted from 0, before which the fault strikes."""
    device: str = "cpu"
    backend: str = "gloo"
    dialect: str = "logging-timed"
    debug: str = ""
    """TORCH_DISTRIBUTED_DEBUG: empty, INFO or DETAIL."""
    cpp_log: str = ""
    """TORCH_CPP_LOG_LEVEL: empty or INFO."""
    nccl_debug: str = ""
    rdzv: str = ""
    """Rendezvous of torchrun and accelerate: empty (static), c10d."""
    restarts: int = 0
    record: bool = False
    """Wrap main() in torchelastic's @record, which writes error.json."""
    flight_recorder: bool = False
    share_gpu: bool = False
    """All ranks use cuda:0."""
    timeout: float = 10.0
    """Of the process group, in seconds."""
    bound: float = 75.0
    """The harness ends the run after this many seconds."""
    epochs: int = 2
    steps_per_epoch: int = 5
    accumulate: int = 2
    seed: int = 1234
    variant: str = ""

    @property
    def world(self) -> int:
        """How many ranks the run has."""
        return self.nproc * self.nnodes

    @property
    def local_rank(self) -> int:
        """The guilty rank's number on its node."""
        return self.rank % self.nproc

    @property
    def node(self) -> int:
        """The node of the guilty rank."""
        return self.rank // self.nproc

    @property
    def name(self) -> str:
        """The fixture's folder: strategy, fault, and whatever is not the default."""
        usual = LAYOUTS_OF.get(self.launcher, ("",))[0]
        parts = [self.strategy, self.fault]
        if self.variant:
            return "-".join([*parts, self.variant])
        if self.launcher != "torchrun":
            parts.append(self.launcher)
        if self.layout != usual:
            parts.append(self.layout)
        if self.nnodes > 1:
            parts.append(f"{self.nnodes}nodes")
        if self.world != 2:
            parts.append(f"{self.world}ranks")
        parts += [word.lower() for word in (self.debug,) if word]
        parts += [f"cpplog{self.cpp_log.lower()}"] if self.cpp_log else []
        parts += [f"nccl_{self.nccl_debug.lower()}"] if self.nccl_debug else []
        parts += ["c10d"] if self.rdzv == "c10d" and self.nnodes == 1 else []
        parts += ["restart"] if self.restarts else []
        parts += ["record"] if self.record else []
        parts += ["fr"] if self.flight_recorder else []
        parts += [self.backend] if self.device == "cuda" else []
        return "-".join(parts)

    def to_json(self) -> str:
        """The plan as the training script reads it."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Plan:
        """A plan from JSON or TOML; an unknown key, word or type is a ValueError that says so."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(fields))
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r} in a run; known are {', '.join(fields)}")
        for key, value in values.items():
            wanted = type(fields[key].default)
            if wanted is float and type(value) is int:
                continue
            if type(value) is not wanted:
                raise ValueError(f"{key} = {value!r}: should be of type {wanted.__name__}")
        plan = cls(**values)
        for key, allowed in _WORDS.items():
            if getattr(plan, key) not in allowed:
                known = ", ".join(word or "(empty)" for word in allowed)
                raise ValueError(f"{key} = {getattr(plan, key)!r}: should be one of {known}")
        for key in ("nproc", "nnodes", "epochs", "steps_per_epoch", "accumulate"):
            if getattr(plan, key) < 1:
                raise ValueError(f"{key} = {getattr(plan, key)}: should be at least 1")
        if not 0 <= plan.rank < plan.world:
            raise ValueError(f"rank = {plan.rank}: the run has ranks 0 to {plan.world - 1}")
        return plan


_WORDS: dict[str, tuple[str, ...]] = {
    "strategy": STRATEGIES,
    "launcher": tuple(LAUNCHERS),
    "layout": tuple(LAYOUTS),
    "dialect": tuple(DIALECTS),
    "device": ("cpu", "cuda"),
    "backend": ("gloo", "nccl"),
    "debug": ("", "INFO", "DETAIL"),
    "cpp_log": ("", "INFO"),
    "nccl_debug": ("", "INFO", "WARN"),
    "rdzv": ("", "c10d"),
}


@dataclass(frozen=True)
class Truth:
    """What a perfect reader of the logs would answer; known before the run starts."""

    status: str
    category: str
    ranks: tuple[int, ...]
    phase: str
    evidence: str = ""
    also_acceptable: tuple[str, ...] = ()
    note: str = ""
    also_phases: tuple[str, ...] = ()
    also_statuses: tuple[str, ...] = ()
    also_ranks: tuple[tuple[int, ...], ...] = ()
    """Other answers about the ranks, where the logs cannot tell which one it was."""


def speaks(plan: Plan, rank: int) -> bool:
    """Whether this rank's ordinary messages are written at all in the plan's dialect."""
    return plan.dialect not in ("trainer", "megatron") or rank == 0


def refuse_shape(plan: Plan) -> str | None:
    """Why the plan's launcher, layout and strategy do not go together; None when they do."""
    if plan.layout not in LAYOUTS_OF[plan.launcher]:
        return f"{plan.launcher} does not write layout {plan.layout}"
    if plan.launcher in ("spawn", "processes") and plan.nnodes > 1 and plan.layout != "ray":
        return f"{plan.launcher} is one node's business here; use torchrun, accelerate or deepspeed"
    if plan.layout == "kubectl" and plan.nnodes < 2:
        return "kubectl labels pods: use at least two nodes"
    if plan.backend == "nccl" and plan.device != "cuda":
        return "NCCL needs a GPU"
    if plan.debug == "DETAIL" and plan.strategy == "ddp" and plan.device == "cpu" and plan.fault != "segfault_detail":
        return "DDP on gloo with debug=DETAIL segfaults in torch 2.13 (see segfault_detail)"
    if plan.restarts and plan.launcher != "torchrun":
        return "restarts are torchrun's"
    if plan.strategy == "fsdp1-hybrid_shard" and plan.world < 4 and plan.fault != "none":
        return "hybrid_shard needs four ranks for two shards twice"
    return None
