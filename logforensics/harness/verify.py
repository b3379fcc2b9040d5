"""Checks that a fixture shows what its truth says: by reading its logs, never by asking the analysis."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from logforensics.harness.capture import read_logs
from logforensics.harness.faults import FAULTS
from logforensics.harness.plan import Plan, Truth
from logforensics.harness.run import Outcome

_FINISHED = b"training finished"
_FAILED = re.compile(rb"Traceback \(most recent call last\)|Fatal Python error|terminate called")
# These end only because the harness ends them, or end well on one of two nodes: their exit codes say nothing.
_MAY_BE_ENDED = {"duplicate_machine_rank", "port_in_use", "wrong_address", "bad_host", "missing_node"}
# The guilty rank waits in C or in sleep and must not have said anything about it.
_SILENT = {"stuck_sleep", "stuck_gil", "dl_hang"}
_LIMIT = 300_000


def load_plan(fixture: Path) -> Plan:
    """The plan that a fixture was made from."""
    values: dict[str, Any] = tomllib.loads((fixture / "provenance.toml").read_text())
    return Plan.from_mapping(values["plan"])


def load_truth(fixture: Path) -> Truth:
    """The truth that is written in a fixture."""
    values: dict[str, Any] = tomllib.loads((fixture / "truth.toml").read_text())
    return Truth(
        values["status"],
        values["category"],
        tuple(values["ranks"]),
        values["phase"],
        values["evidence"],
        tuple(values["also_acceptable"]),
        values.get("note", ""),
        tuple(values.get("also_acceptable_phases", ())),
        tuple(values.get("also_acceptable_status", ())),
        tuple(tuple(ranks) for ranks in values.get("also_acceptable_ranks", ())),
    )


def problems(fixture: Path, outcome: Outcome | None = None) -> list[str]:
    """What is wrong with a fixture, one sentence each; empty when its run did what was injected."""
    plan, truth = load_plan(fixture), load_truth(fixture)
    provenance: dict[str, Any] = tomllib.loads((fixture / "provenance.toml").read_text())
    found = []
    if truth != FAULTS[plan.fault].truth(plan):
        found.append("truth.toml is not what the plan's fault says")
    logs = read_logs(fixture)
    text = b"\n".join(logs.values())
    if len(text) > _LIMIT:
        found.append(f"{len(text)} bytes of logs")
    if outcome is not None and not outcome.struck:
        found.append("the injected code was never reached")
    if truth.evidence and truth.evidence.encode() not in text:
        found.append(f"the evidence {truth.evidence!r} is in no log")
    codes, ended = provenance["exit_codes"], provenance["ended_by_harness"]
    if truth.status == "no_failure":
        if ended or any(codes):
            found.append(f"a run that should finish has exit codes {codes}")
        if _FINISHED not in text:
            found.append("no rank says that training finished")
    else:
        if not any(codes) and plan.fault not in _MAY_BE_ENDED:
            found.append("a run that should fail ended with 0")
        if ended and plan.fault not in _MAY_BE_ENDED:
            found.append("the run did not end by itself")
    return found + _witnesses(plan, truth, logs)


def _witnesses(plan: Plan, truth: Truth, logs: dict[str, bytes]) -> list[str]:
    """Checks that need to know which rank wrote which file."""
    own = {name: data for name, data in logs.items() if _is_rank_file(plan, name, plan.rank)}
    if not own or truth.status == "no_failure":
        return []
    said = b"\n".join(own.values())
    found = []
    if plan.fault in _SILENT and _FAILED.search(said) and plan.launcher in ("torchrun", "accelerate"):
        found.append("the rank that should be silent has a traceback")
    everywhere = b"\n".join(data for name, data in logs.items() if name not in own)
    evidence = truth.evidence.encode()
    if evidence and truth.ranks == (plan.rank,) and evidence not in said and not _elsewhere(plan, truth):
        found.append("the evidence is not in the guilty rank's own file")
    if evidence and evidence in everywhere and plan.fault in ("shape", "dl_exception", "key_error"):
        others = [n for n, d in logs.items() if n not in own and evidence in d and "launcher" not in n]
        if others:
            found.append(f"the evidence is also in {others[0]}")
    if _FINISHED in said:
        found.append("the guilty rank says that training finished")
    return found


def _elsewhere(plan: Plan, truth: Truth) -> bool:
    """Whether the evidence is written by somebody else: a launcher, a peer, another rank's report."""
    return (
        "exit" in truth.evidence
        or "terminated" in truth.evidence
        or plan.fault in ("late_join", "barrier_timeout", "cross_shape", "mismatch_size", "mismatch_dtype")
        or plan.launcher == "spawn"
        or plan.debug == "DETAIL"
    )


def _is_rank_file(plan: Plan, name: str, rank: int) -> bool:
    local, node = rank % plan.nproc, rank // plan.nproc
    if plan.layout == "logdir":
        here = plan.nnodes == 1 or name.startswith(f"node{node}/")
        return here and f"/{local}/" in name
    if plan.layout == "per_rank":
        return name.endswith((f"rank_{rank}.log", f"_rank{rank}.log"))
    return False
