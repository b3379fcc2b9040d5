"""Chooses the incident that explains the rest, and says how sure that is, what speaks against it, what to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from logforensics.clock import SECOND
from logforensics.correlate.advice import advise, support
from logforensics.correlate.attribution import attribute
from logforensics.correlate.chain import build_chain, first_exceptions
from logforensics.correlate.collectives import Stuck
from logforensics.correlate.exits import find_exits, unexplained_exit
from logforensics.correlate.facts import Facts, exit_code_of, gather
from logforensics.correlate.fates import rank_states
from logforensics.correlate.incident import LATE_LINE_US, Incident, before
from logforensics.correlate.incidents import find_incidents
from logforensics.correlate.missing import what_is_missing
from logforensics.correlate.phase import phase_of
from logforensics.correlate.recorder import GroupState
from logforensics.correlate.silence import find_silent
from logforensics.identity import Identity
from logforensics.language import _, name_ranks, several
from logforensics.model import (
    Alternative,
    ChainLink,
    CollectiveState,
    Event,
    Evidence,
    RankState,
    Verdict,
)
from logforensics.reader import Reading
from logforensics.sources import Sources
from logforensics.wording import headline, remedies_for

# How much evidence is shown; the timeline has all of it.
_MOST_EVIDENCE = 6
_MOST_ALTERNATIVES = 5
# A line that only says that something ended, or timed out, explains less than what silence tells.
_VAGUE = {"unknown_exit", "unknown_timeout"}
_CUDA_ERRORS = {"illegal_memory_access", "device_assert", "unknown_exit", "user_exception"}
_HARDWARE_SLACK_US = 120 * SECOND


@dataclass(slots=True)
class Diagnosis:
    """The verdict and everything that is shown beside it."""

    verdict: Verdict
    ranks: list[RankState]
    first_exceptions: list[Event]
    chain: list[ChainLink]
    collectives: list[CollectiveState]
    attempts: int
    run_facts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Judgement:
    """One attempt judged: the chosen incident, its rivals, and the failures that the run survived."""

    facts: Facts
    incident: Incident
    rivals: list[Incident]
    survived: list[Event]
    stuck: list[Stuck]
    confidence: str


def diagnose(
    events: list[Event],
    identity: Identity,
    readings: list[Reading],
    sources: Sources,
    recorded: list[GroupState] | None = None,
) -> Diagnosis:
    """Judge each attempt of the run and give the verdict on the first that failed.

    ``recorded`` is what the flight recorder's dumps say together.
    """
    attempts = sorted({event.attempt for event in events if event.stream != "config"}) or [0]
    judged: list[Judgement] = []
    for attempt in attempts:
        own = [event for event in events if event.attempt == attempt or (len(attempts) > 1 and _shared(event))]
        attribute(own)
        judged.append(judge(gather(own, identity, [s for s in recorded or [] if s.attempt == attempt])))
    chosen = next((item for item in judged if item.incident.category != "no_failure"), judged[0])
    facts, incident = chosen.facts, chosen.incident
    verdict = _verdict(chosen, sources, readings)
    if len(judged) > 1:
        verdict.explanation += _attempts_in_words(judged, attempts)
    configs = {reading.source.name: reading.config for reading in readings if reading.config is not None}
    advice = advise(configs.values(), identity.world_size)
    verdict.advice = [item.told for item in advice]
    support(verdict, [item for item in advice if verdict.category in item.supports], configs, events)
    states = rank_states(facts, incident)
    firsts = first_exceptions(facts, chosen.survived)
    return Diagnosis(
        verdict=verdict,
        ranks=states,
        first_exceptions=firsts,
        chain=build_chain(facts, incident, states),
        collectives=[stuck.state() for stuck in chosen.stuck],
        attempts=len(attempts),
        run_facts=_run_facts(events),
    )


def _shared(event: Event) -> bool:
    """A launcher's or a kernel's line belongs to no attempt's folder; every attempt may need it."""
    return event.stream in {"launcher", "scheduler", "kernel", "config"} and event.attempt == 0


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
    vague = [incident for incident in own if incident.tier == 1 and incident.category in _VAGUE]
    doubtful = [incident for incident in own if incident.tier == 1 and incident.category not in _VAGUE]
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
    others = [r for r in rivals if r.tier == 0 and r.consequence_of is None and r.rule == "own-failure"]
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


# -- in words -----------------------------------------------------------------------------------------------------


def _verdict(judged: Judgement, sources: Sources, readings: list[Reading]) -> Verdict:
    incident, facts = judged.incident, judged.facts
    evidence = incident.evidence[:_MOST_EVIDENCE] if incident.category != "no_failure" else []
    nodes = sorted({event.node for event in incident.events if event.node and event.rank in incident.ranks})
    verdict = Verdict(
        status=incident.status,
        category=incident.category,
        ranks=sorted(incident.ranks),
        nodes=nodes,
        phase=phase_of(incident, facts),
        confidence=judged.confidence,
        headline=headline(incident, facts),
        explanation=_explanation(judged),
        evidence=[_evidence(event) for event in evidence],
        alternatives=_alternatives(judged),
        missing=what_is_missing(facts, incident, sources, readings),
        rules=[incident.rule],
    )
    verdict.remedies = remedies_for(verdict.category, verdict.phase, incident)
    return verdict


def _evidence(event: Event) -> Evidence:
    return Evidence(
        source=event.source,
        line=event.line,
        end_line=event.end_line,
        text=event.message,
        rank=event.rank,
        node=event.node,
        time_us=event.time_us,
        event_id=event.event_id,
    )


def _explanation(judged: Judgement) -> list[str]:
    incident, facts = judged.incident, judged.facts
    lines = [f"{text[0].upper()}{text[1:]}." for text in incident.why]
    timeout = facts.first_timeout
    if timeout is not None and incident.category != "no_failure" and incident.tier < 2:
        lead = _lead(incident.first, timeout)
        waiting = sorted({event.rank for event in facts.timeouts if event.rank is not None})
        who = name_ranks(waiting) if waiting else _("the other ranks")
        if lead is not None and lead > 0:
            lines.append(
                _("It came {seconds} s before {ranks} gave up waiting: the timeouts are its consequence.").format(
                    seconds=f"{lead:.1f}", ranks=who
                )
            )
        elif incident.ranks and set(waiting) - set(incident.ranks):
            lines.append(_("The timeout on {ranks} is a consequence, not the cause.").format(ranks=who))
    elif incident.ranks and incident.tier < 2:
        lost = sorted(rank for rank, own in facts.ranks.items() if own.lost_peer and rank not in incident.ranks)
        if lost:
            lines.append(
                _("The errors of {ranks} only say that a peer was gone: a consequence, not the cause.").format(
                    ranks=name_ranks(lost)
                )
            )
    launcher = _launcher_says(facts, incident)
    if launcher:
        lines.append(launcher)
    if judged.survived:
        lines.append(
            several(
                "{count} earlier failure was caught and the run went on; it is not the cause.",
                "{count} earlier failures were caught and the run went on; they are not the cause.",
                len(judged.survived),
            ).format(count=len(judged.survived))
        )
    return lines


def _lead(first: Event, timeout: Event) -> float | None:
    if first.time_us is None or timeout.time_us is None:
        return None
    return (timeout.time_us - first.time_us) / 1e6


def _launcher_says(facts: Facts, incident: Incident) -> str | None:
    """The launcher's own first failure, when it names another rank: people believe it, so it must be explained."""
    named = next((e for e in facts.exits if e.rank is not None and exit_code_of(e) not in {None, 0, -15}), None)
    if named is None or not incident.ranks or named.rank in incident.ranks:
        return None
    return _(
        "The launcher reports rank {rank} first: it lists the first exit that it noticed on its own node, and a rank "
        "that hangs or leaves quietly is not noticed."
    ).format(rank=named.rank)


def _alternatives(judged: Judgement) -> list[Alternative]:
    chosen = judged.incident
    found: list[Alternative] = []
    for rival in judged.rivals:
        if rival.category in {chosen.category, *_VAGUE} and set(rival.ranks) <= set(chosen.ranks):
            continue  # the same failure, or how it ended
        if any(other.category == rival.category and other.ranks == sorted(rival.ranks) for other in found):
            continue
        if rival.consequence_of:
            why = rival.consequence_of
        elif rival.tier > chosen.tier:
            why = _("it can follow from another rank's failure, and one is shown")
        elif before(chosen.first, rival.first) is True:
            why = _("it came later")
        elif before(chosen.first, rival.first) is None:
            why = _("it came at about the same time; the logs do not settle the order")
        else:
            why = _("it explains less of what the other ranks show")
        found.append(Alternative(rival.category, sorted(rival.ranks), why))
    return found[:_MOST_ALTERNATIVES]


def _attempts_in_words(judged: list[Judgement], attempts: list[int]) -> list[str]:
    lines = []
    for attempt, item in zip(attempts, judged, strict=True):
        lines.append(
            _("Attempt {number}: {headline} ({confidence} confidence).").format(
                number=attempt, headline=headline(item.incident, item.facts), confidence=_(item.confidence)
            )
        )
    return lines


def _run_facts(events: list[Event]) -> dict[str, str]:
    """Versions and the like, as far as lines of the logs state them."""
    found: dict[str, str] = {}
    for event in events:
        name, version = event.fields.get("name"), event.fields.get("version")
        if event.role == "context" and version:
            dialect, _slash, identity = event.signature.partition("/")
            found.setdefault(str(name or (dialect if identity == "version" else identity)), str(version))
    return found
