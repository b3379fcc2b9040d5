"""Judges one attempt: which incident explains the rest, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

from logforensics.clock import SECOND
from logforensics.correlate.collectives import Stuck
from logforensics.correlate.exits import find_exits, unexplained_exit
from logforensics.correlate.facts import Facts, exit_code_of
from logforensics.correlate.incident import LATE_LINE_US, OWN_FAILURE, Incident, before
from logforensics.correlate.incidents import find_incidents
from logforensics.correlate.silence import find_silent
from logforensics.language import _
from logforensics.model import Event

# A line that only says that something ended, or timed out, explains less than what silence tells.
VAGUE = {"unknown_exit", "unknown_timeout"}
_CUDA_ERRORS = {"illegal_memory_access", "device_assert", "unknown_exit", "user_exception"}
_HARDWARE_SLACK_US = 120 * SECOND


@dataclass(slots=True)
class Judgement:
    """One attempt judged: the chosen incident, its rivals, and the failures that the run survived."""

    facts: Facts
    incident: Incident
    rivals: list[Incident]
    survived: list[Event]
    stuck: list[Stuck]
    confidence: str


def judge(facts: Facts) -> Judgement:
    """Choose the incident that explains the rest of one attempt."""
    incidents, survived = find_incidents(facts)
    silent, stuck = find_silent(facts)
    exits = find_exits(facts)
    able = [incident for incident in incidents if incident.consequence_of is None]
    chosen = _choose(able, exits, silent, facts)
    if chosen is None and incidents:
        chosen = incidents[0]
    if chosen is None:
        chosen = _nothing(facts)
    _lend_ranks(chosen, facts, stuck[0].absent if stuck else [])
    rivals = [item for item in (*incidents, *exits, *silent) if item is not chosen]
    confidence = _confidence(chosen, rivals, facts)
    return Judgement(facts, chosen, rivals, survived, stuck, confidence)


def _choose(own: list[Incident], exits: list[Incident], silent: list[Incident], facts: Facts) -> Incident | None:
    """Order: a failure in its own right; a kill or crash; what silence tells; what may be a consequence."""
    certain = [incident for incident in own if incident.tier == 0]
    vague = [incident for incident in own if incident.tier == 1 and incident.category in VAGUE]
    doubtful = [incident for incident in own if incident.tier == 1 and incident.category not in VAGUE]
    told = [incident for incident in silent if incident.tier == 0]
    if certain:
        first = _hardware_behind(certain) or certain[0]
        rival = _earlier(doubtful, first)
        crash = next((item for item in exits if item.tier == 0 and before(item.first, first.first) is True), None)
        if rival is not None:
            return rival
        if crash is not None and first.category in {"user_exception", "interrupted", "dataloader"}:
            return crash
        if first.category == "preempted" and told and facts.stall_start_us is not None:
            return first
        return first
    deadly = [incident for incident in exits if incident.tier == 0]
    if deadly:
        return deadly[0]
    mismatch = next((item for item in told if item.rule in {"different-collectives", "named-absent"}), None)
    if mismatch:
        return mismatch
    if doubtful:
        return doubtful[0]
    if told:
        return told[0]
    if exits:
        return exits[0]
    # the silent suspect did say something, though it does not tell why
    said = next((item for item in vague if silent and item.ranks and item.ranks == sorted(silent[0].ranks)), None)
    if said:
        return said
    if silent:
        return silent[0]
    return vague[0] if vague else None


def _hardware_behind(certain: list[Incident]) -> Incident | None:
    """A GPU fault in the kernel log is what the CUDA errors of that moment were about; it lends their rank."""
    first = certain[0]
    if first.category not in _CUDA_ERRORS:
        return None
    fault = next((item for item in certain if item.category == "gpu_hardware"), None)
    if fault is None or fault is first or before(first.first, fault.first, _HARDWARE_SLACK_US) is True:
        return None
    if not fault.ranks:
        fault.ranks = list(first.ranks)
    fault.why.append(_("the kernel log shows a GPU fault; the CUDA error is how the process noticed it"))
    return fault


def _earlier(doubtful: list[Incident], first: Incident) -> Incident | None:
    """A failure that may be a consequence, but came clearly before the first certain one, is not its consequence."""
    for incident in doubtful:
        earlier = before(incident.first, first.first, LATE_LINE_US)
        same_source = incident.first.source == first.first.source
        if earlier is True and not same_source:
            return incident
    return None


def _lend_ranks(incident: Incident, facts: Facts, absent: list[int]) -> None:
    """A kernel or scheduler line without a rank is about the ranks that were killed, when they are known."""
    if incident.ranks or incident.scope != "rank":
        return
    if incident.category in {"slow_rank", "segfault"} and len(absent) == 1:
        incident.ranks = list(absent)
    if incident.category == "host_oom":
        incident.ranks = [event.rank for event in facts.exits if exit_code_of(event) == -9 and event.rank is not None]
        incident.ranks = sorted(set(incident.ranks))


def _nothing(facts: Facts) -> Incident:
    """No failure found: the run is fine, or its logs do not show what happened."""
    left = unexplained_exit(facts)
    if left:
        return left
    if facts.finished or facts.progress or facts.activities:
        last = (facts.finished or facts.progress or facts.activities)[-1]
        return Incident(
            "no_failure",
            [last],
            [],
            "nothing-failed",
            status="no_failure",
            why=[
                _("no rank shows a failure")
                if facts.finished
                else _("no rank shows a failure; the logs do not say either that the run ended")
            ],
            confidence="high" if facts.finished else "medium",
        )
    return Incident(
        "no_failure" if facts.events else "unknown_exit",
        facts.events[-1:],
        [],
        "nothing-found",
        tier=2,
        status="no_failure" if facts.events else "undetermined",
        why=[_("no line of these logs is known to show a failure, progress or an end")],
        confidence="low",
    )


# -- how sure -----------------------------------------------------------------------------------------------------


def _confidence(incident: Incident, rivals: list[Incident], facts: Facts) -> str:
    if incident.confidence is not None:
        return incident.confidence
    if incident.scope == "run":
        return "high" if incident.tier == 0 else "medium"
    if incident.tier > 0:
        return "medium" if (incident.ranks and facts.symptoms) or facts.timeouts else "low"
    doubts = 0
    if not incident.ranks:
        doubts += 1
    others = [r for r in rivals if r.tier == 0 and r.consequence_of is None and r.rule == OWN_FAILURE]
    for rival in others:
        if set(rival.ranks) != set(incident.ranks) and before(incident.first, rival.first) is not True:
            doubts += 1
    if incident.category == "user_exception" and incident.first.fields.get("activity") in {None, "barrier"}:
        doubts += 1
    confirmed = (
        any(own.victim for rank, own in facts.ranks.items() if rank not in incident.ranks)
        or any(exit_code_of(e) not in {None, 0} for e in facts.exits)
        or any(event.fields.get("raised") for event in incident.events)
    )
    if not confirmed:
        doubts += 1
    return ("high", "medium", "low")[min(doubts, 2)]
