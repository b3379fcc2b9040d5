"""What a fault is, and the truths that follow from what was injected.

A truth is a function of the plan, written down before any run. Where the honest answer is *undetermined* the
logs of such a run hold nothing that tells the cause; the injected fault is then only in ``also_acceptable``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logforensics.harness.plan import Plan, Truth, speaks

TruthOf = Callable[[Plan], Truth]


@dataclass(frozen=True)
class Fault:
    """One kind of failure. ``strategies`` and ``launchers`` empty: all; otherwise ``because`` says why only those."""

    name: str
    injects: str
    truth: TruthOf
    strategies: tuple[str, ...] = ()
    launchers: tuple[str, ...] = ()
    because: str = ""
    device: str = ""
    backend: str = ""
    debug: str = ""
    nnodes: int = 1
    gpus: int = 0
    world: int = 2
    needs_mount: bool = False
    strikes_rank: bool = True
    external: tuple[str, ...] = ()
    """The signal that the harness sends from outside, and to whom."""

    def refuse(self, plan: Plan) -> str | None:
        """Why this fault makes no sense in this plan; None when it does."""
        if self.strategies and not plan.strategy.startswith(self.strategies):
            return f"{self.name} is for {', '.join(self.strategies)}: {self.because}"
        if self.launchers and plan.launcher not in self.launchers:
            return f"{self.name} is for {', '.join(self.launchers)}: {self.because}"
        if self.device and plan.device != self.device:
            return f"{self.name} needs --device {self.device}"
        if self.backend and plan.backend != self.backend:
            return f"{self.name} needs --backend {self.backend}"
        if self.debug and plan.debug != self.debug:
            return f"{self.name} needs debug {self.debug}: {self.because}"
        if plan.nnodes < self.nnodes:
            return f"{self.name} needs --nnodes {self.nnodes} or more"
        if plan.world < self.world:
            return f"{self.name} needs {self.world} ranks or more"
        return None


def said(plan: Plan, text: str) -> str:
    return text if speaks(plan, plan.rank) else ""


def exit_line(plan: Plan, code: int) -> str:
    names = {-9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM", -2: "SIGINT"}
    if plan.launcher in ("torchrun", "accelerate"):
        return f"failed (exitcode: {code}) local_rank: {plan.local_rank}"
    if plan.launcher == "deepspeed":
        return f"exits with return code = {code}"
    if plan.launcher == "spawn":
        how = f"signal {names[code]}" if code < 0 else f"exit code {code}"
        return f"process {plan.rank} terminated with {how}"
    return ""


def shown_here(
    category: str, evidence: str, *also: str, phase: str = "mid_training", note: str = "", everyone: bool = False
) -> TruthOf:
    """Diagnosed, on the guilty rank (or all), with a line that says so."""

    def truth(plan: Plan) -> Truth:
        ranks = tuple(range(plan.world)) if everyone else (plan.rank,)
        return Truth("diagnosed", category, ranks, phase, evidence, also, note)

    return truth


def spoken(category: str, text: str, *also: str, phase: str = "mid_training", note: str = "") -> TruthOf:
    """Diagnosed by a message of the guilty rank, which some dialects do not write: then nothing tells."""

    def truth(plan: Plan) -> Truth:
        line = said(plan, text)
        if line:
            return Truth("diagnosed", category, (plan.rank,), phase, line, also, note)
        others = (category, *(word for word in also if word != "unknown_timeout"))
        return Truth("undetermined", "unknown_timeout", (plan.rank,), phase, "", others, note)

    return truth


def silent(category: str, *also: str, phase: str = "mid_training", note: str = "") -> TruthOf:
    """Undetermined: the guilty rank writes nothing and nobody else knows."""
    return lambda plan: Truth("undetermined", category, (plan.rank,), phase, "", also, note)


def exit_only(category: str, code: int, *also: str, note: str = "") -> TruthOf:
    """The launcher's exit line is all there is; a plain process has not even that."""

    def truth(plan: Plan) -> Truth:
        line = exit_line(plan, code)
        if not line and category == "unknown_exit":
            return Truth("undetermined", category, (plan.rank,), "mid_training", "", also, note)
        if not line:
            return Truth("undetermined", "unknown_exit", (plan.rank,), "mid_training", "", (category, *also), note)
        return Truth("diagnosed", category, (plan.rank,), "mid_training", line, also, note)

    return truth


def nobody(category: str, evidence: str, *also: str, phase: str, note: str = "") -> TruthOf:
    """Diagnosed, but it is no rank's doing."""
    return lambda plan: Truth("diagnosed", category, (), phase, evidence, also, note)


def fine(evidence: str = "", note: str = "") -> TruthOf:
    return lambda plan: Truth("no_failure", "no_failure", (), "unknown", evidence, (), note)


def mismatch(plan: Plan) -> Truth:
    both = tuple(range(plan.world)) if plan.world == 2 else (plan.rank,)
    if plan.debug == "DETAIL":
        line = "Detected mismatch between collectives on ranks"
        note = "of two ranks neither is the odd one" if plan.world == 2 else ""
        return Truth("diagnosed", "collective_mismatch", both, "mid_training", line, (), note)
    if plan.fault in ("mismatch_size", "mismatch_dtype"):
        line = "Is there a distributed collective mismatch in your code"
        note = "gloo aborts the rank that receives, whoever was wrong"
        return Truth("diagnosed", "collective_mismatch", both, "mid_training", line, (), note)
    note = "without TORCH_DISTRIBUTED_DEBUG=DETAIL all ranks just wait, at two call sites"
    also = ("collective_mismatch", "slow_rank")
    return Truth("undetermined", "unknown_timeout", (plan.rank,), "mid_training", "", also, note)


def unused(plan: Plan) -> Truth:
    if plan.strategy == "ddp":
        line = "Expected to have finished reduction in the prior iteration before starting a new one"
        return Truth("diagnosed", "unused_parameters", (plan.rank,), "mid_training", line)
    return other_branch(plan)


def other_branch(plan: Plan) -> Truth:
    both = tuple(range(plan.world)) if plan.world == 2 else (plan.rank,)
    category = "zero_mismatch" if plan.strategy.startswith("zero3") else "collective_mismatch"
    if plan.debug == "DETAIL":
        line = "Detected mismatch between collectives on ranks"
        also = ("collective_mismatch", "unused_parameters", "zero_mismatch")
        return Truth("diagnosed", category, both, "mid_training", line, tuple(w for w in also if w != category))
    also = ("zero_mismatch", "collective_mismatch", "unused_parameters")
    note = "the rank skips a module; its collectives no longer pair with the others', and nothing says so"
    return Truth("undetermined", "unknown_timeout", both, "mid_training", "", also, note)


def cross_shape(plan: Plan) -> Truth:
    if plan.strategy == "ddp":
        line = "appears not to match sizes of the same param in process 0"
        return Truth("diagnosed", "shape_mismatch", (plan.rank,), "first_collective", line, ("collective_mismatch",))
    both = tuple(range(plan.world)) if plan.world == 2 else (plan.rank,)
    line = "Is there a distributed collective mismatch in your code"
    note = "the rank that aborts may be the innocent one"
    return Truth("diagnosed", "collective_mismatch", both, "first_collective", line, ("shape_mismatch",), note)


def disk_full(plan: Plan) -> Truth:
    writers = (0,) if plan.strategy == "ddp" or plan.strategy.startswith("fsdp1") else tuple(range(plan.world))
    note = "a 64 KB disk; torch's zip writer does not say errno 28"
    return Truth("diagnosed", "disk_full", writers, "checkpoint", "unexpected pos", ("checkpoint_error",), note)


def port_in_use(plan: Plan) -> Truth:
    ranks = () if plan.launcher in ("torchrun", "accelerate") else (0,)
    return Truth("diagnosed", "rendezvous", ranks, "rendezvous", "EADDRINUSE", ("config_error",))


def barrier(plan: Plan) -> Truth:
    line = f"Ranks {plan.rank} failed to pass monitoredBarrier"
    also = ("slow_rank", "unknown_timeout")
    return Truth("diagnosed", "barrier_timeout", (plan.rank,), "mid_training", line, also)


def interrupted(plan: Plan) -> Truth:
    return Truth("diagnosed", "interrupted", (), "mid_training", "KeyboardInterrupt")


def preempted(plan: Plan) -> Truth:
    line = "death signal" if plan.launcher in ("torchrun", "accelerate") else ""
    return Truth("diagnosed", "preempted", (), "mid_training", line, ("interrupted",))


def early_exit(plan: Plan) -> Truth:
    line = exit_line(plan, 1)
    status = "diagnosed" if line else "undetermined"
    return Truth(status, "unknown_exit", (plan.rank,), "rendezvous", line, ("rendezvous", "missing_node"))
