"""What a fault is, and the truths that follow from what was injected.

A truth is a function of the plan, written down before any run. Where the honest answer is *undetermined* the
logs of such a run hold nothing that tells the cause; the injected fault is then only in ``also_acceptable``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from logforensics.harness.plan import Plan, Truth, speaks

TruthOf = Callable[[Plan], Truth]


@dataclass(frozen=True)
class Fault:
    """One kind of failure; ``strategies`` and ``launchers`` empty: all, otherwise ``because`` says why."""

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
        if self.name == "port_in_use" and plan.launcher == "accelerate" and plan.nnodes == 1:
            return "accelerate on one machine takes another port by itself: nothing would fail"
        if plan.nnodes < self.nnodes:
            return f"{self.name} needs --nnodes {self.nnodes} or more"
        if plan.world < self.world:
            return f"{self.name} needs {self.world} ranks or more"
        return None


def said(plan: Plan, text: str) -> str:
    """The text, if the guilty rank's dialect writes it at all; else nothing."""
    return text if speaks(plan, plan.rank) else ""


def exit_line(plan: Plan, code: int) -> str:
    """What the launcher writes about the guilty rank's exit code; empty where nobody does."""
    names = {-9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM", -2: "SIGINT"}
    if plan.launcher in ("torchrun", "accelerate"):
        return f"failed (exitcode: {code}) local_rank: {plan.local_rank}"
    if plan.launcher == "deepspeed":
        return f"exits with return code = {code}"
    if plan.launcher == "spawn":
        how = f"signal {names[code]}" if code < 0 else f"exit code {code}"
        return f"process {plan.rank} terminated with {how}"
    return ""


def lenient(of: TruthOf, *phases: str, statuses: tuple[str, ...] = ()) -> TruthOf:
    """The same truth where a reader may as well say another phase or status."""

    def truth_of(plan: Plan) -> Truth:
        truth = of(plan)
        return replace(truth, also_phases=phases, also_statuses=statuses or truth.also_statuses)

    return truth_of


def shown_here(
    category: str,
    evidence: str,
    *also: str,
    phase: str = "mid_training",
    note: str = "",
    everyone: bool = False,
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

    def truth_of(plan: Plan) -> Truth:
        line = exit_line(plan, code)
        if not line and category == "unknown_exit":
            return Truth("undetermined", category, (plan.rank,), "mid_training", "", also, note)
        if not line:
            return Truth("undetermined", "unknown_exit", (plan.rank,), "mid_training", "", (category, *also), note)
        truth = Truth("diagnosed", category, (plan.rank,), "mid_training", line, also, note)
        if plan.launcher == "deepspeed":
            why = "DeepSpeed's launcher gives the code, and the last child's command line whoever failed"
            return replace(truth, note=why, also_statuses=("undetermined",), also_ranks=((),))
        return truth

    return truth_of


def nobody(category: str, evidence: str, *also: str, phase: str, note: str = "") -> TruthOf:
    """Diagnosed, but it is no rank's doing."""
    return lambda plan: Truth("diagnosed", category, (), phase, evidence, also, note)


def fine(evidence: str = "", note: str = "") -> TruthOf:
    """The run finishes."""
    return lambda plan: Truth("no_failure", "no_failure", (), "unknown", evidence, (), note)


def mismatch(plan: Plan) -> Truth:
    """Ranks that call different collectives: told by DETAIL, by gloo's abort, or by nobody."""
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
    status = ("diagnosed",)  # the two call sites may be seen, if both ranks get to print
    ranks = ((), tuple(range(plan.world)))
    return Truth("undetermined", "unknown_timeout", (plan.rank,), "mid_training", "", also, note, (), status, ranks)


def unused(plan: Plan) -> Truth:
    """Parameters without gradient: only DDP names them."""
    if plan.strategy == "ddp":
        line = "Expected to have finished reduction in the prior iteration before starting a new one"
        return Truth("diagnosed", "unused_parameters", (plan.rank,), "mid_training", line)
    return other_branch(plan)


def other_branch(plan: Plan) -> Truth:
    """A rank that takes another branch of the model, so that its collectives pair with the wrong ones."""
    both = tuple(range(plan.world)) if plan.world == 2 else (plan.rank,)
    category = "zero_mismatch" if plan.strategy.startswith("zero3") else "collective_mismatch"
    if plan.debug == "DETAIL":
        line = "Detected mismatch between collectives on ranks"
        also = ("collective_mismatch", "unused_parameters", "zero_mismatch")
        return Truth("diagnosed", category, both, "mid_training", line, tuple(w for w in also if w != category))
    if category == "collective_mismatch":
        line = "Is there a distributed collective mismatch in your code"
        note = "gloo aborts the rank that receives, whoever was wrong"
        return Truth("diagnosed", category, both, "mid_training", line, ("unused_parameters",), note)
    also = ("zero_mismatch", "collective_mismatch", "unused_parameters")
    note = "the rank skips a module; its collectives no longer pair with the others', and nothing says so"
    status = ("diagnosed",)  # the two call sites may be seen, if both ranks get to print
    ranks = ((), (plan.rank,))
    return Truth("undetermined", "unknown_timeout", both, "mid_training", "", also, note, (), status, ranks)


def cross_shape(plan: Plan) -> Truth:
    """One rank's model is wider: DDP compares and tells, the others collide."""
    if plan.strategy == "ddp":
        line = "appears not to match sizes of the same param in process 0"
        return Truth("diagnosed", "shape_mismatch", (plan.rank,), "first_collective", line, ("collective_mismatch",))
    both = tuple(range(plan.world)) if plan.world == 2 else (plan.rank,)
    line = "Is there a distributed collective mismatch in your code"
    note = "the rank that aborts may be the innocent one"
    return Truth("diagnosed", "collective_mismatch", both, "first_collective", line, ("shape_mismatch",), note)


def disk_full(plan: Plan) -> Truth:
    """The ranks that write the strategy's checkpoint find the disk full."""
    writers = (0,) if plan.strategy == "ddp" or plan.strategy.startswith("fsdp1") else tuple(range(plan.world))
    line = "No space left on device" if plan.strategy == "fsdp2" else "unexpected pos"
    note = "a 64 KB disk; torch's zip writer does not say errno 28, distributed checkpoints do"
    return Truth("diagnosed", "disk_full", writers, "checkpoint", line, ("checkpoint_error",), note)


def port_in_use(plan: Plan) -> Truth:
    """The agent, or rank 0 where there is no agent, cannot listen."""
    ranks = () if plan.launcher in ("torchrun", "accelerate") else (0,)
    line = "another process is utilizing it" if plan.launcher == "accelerate" else "EADDRINUSE"
    return Truth("diagnosed", "rendezvous", ranks, "rendezvous", line, ("config_error",))


def barrier(plan: Plan) -> Truth:
    """The monitored barrier names who did not come."""
    line = f"Ranks {plan.rank} failed to pass monitoredBarrier"
    also = ("slow_rank", "unknown_timeout")
    return Truth("diagnosed", "barrier_timeout", (plan.rank,), "mid_training", line, also)


def interrupted(plan: Plan) -> Truth:
    """Ctrl-C: everybody is told, nobody is guilty."""
    return Truth("diagnosed", "interrupted", (), "mid_training", "KeyboardInterrupt")


def preempted(plan: Plan) -> Truth:
    """SIGTERM to the launcher: the scheduler's doing."""
    line = "death signal" if plan.launcher in ("torchrun", "accelerate") else ""
    return Truth("diagnosed", "preempted", (), "mid_training", line, ("interrupted",))


def wrong_interface(plan: Plan) -> Truth:
    """One rank names an interface that is not there; torch marks no rank before the process group exists."""
    truth = Truth("diagnosed", "network_interface", (plan.rank,), "rendezvous", "ib7", ("config_error", "rendezvous"))
    unnamed = ((),) if plan.launcher == "deepspeed" else ()
    note = "neither the traceback nor DeepSpeed's launcher names the rank" if unnamed else ""
    return replace(truth, also_phases=("launch", "first_collective"), also_ranks=unnamed, note=note)


def early_exit(plan: Plan) -> Truth:
    """Exit code 1 before the process group exists."""
    line = exit_line(plan, 1)
    status = "diagnosed" if line else "undetermined"
    return Truth(status, "unknown_exit", (plan.rank,), "rendezvous", line, ("rendezvous", "missing_node"))


def missing_node(plan: Plan) -> Truth:
    """The agents that came wait for the one that did not."""
    waiting = f"{plan.nnodes - 1}/{plan.nnodes} clients joined"
    line = "RendezvousTimeoutError" if plan.rdzv == "c10d" else waiting
    return Truth("diagnosed", "missing_node", (), "rendezvous", line, ("rendezvous",))
