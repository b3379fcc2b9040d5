"""Puts the diagnosis together: the verdict on the attempt that matters, and everything that is shown beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

from logforensics.correlate.advice import advise, support
from logforensics.correlate.attribution import attribute
from logforensics.correlate.chain import build_chain, first_exceptions
from logforensics.correlate.explain import alternatives, explain, rulings
from logforensics.correlate.facts import gather
from logforensics.correlate.fates import rank_states
from logforensics.correlate.incident import evidence_of
from logforensics.correlate.judgement import Judgement, judge
from logforensics.correlate.missing import what_is_missing
from logforensics.correlate.phase import phase_of
from logforensics.correlate.recorder import GroupState
from logforensics.correlate.retries import attempt_verdicts, attempts_in_words, choose_attempt
from logforensics.identity import Identity
from logforensics.model import AttemptVerdict, ChainLink, CollectiveState, Event, RankState, Verdict
from logforensics.reader import Reading
from logforensics.sources import Sources
from logforensics.wording import headline, remedies_for

# How much evidence is shown; the timeline has all of it.
_MOST_EVIDENCE = 6


@dataclass(slots=True)
class Diagnosis:
    """The verdict and everything that is shown beside it. ``attempts`` has one entry for each, mostly one."""

    verdict: Verdict
    ranks: list[RankState]
    first_exceptions: list[Event]
    chain: list[ChainLink]
    collectives: list[CollectiveState]
    attempts: list[AttemptVerdict]
    run_facts: dict[str, str] = field(default_factory=dict)


def diagnose(
    events: list[Event],
    identity: Identity,
    readings: list[Reading],
    sources: Sources,
    recorded: list[GroupState] | None = None,
) -> Diagnosis:
    """Judge each attempt of the run and give the verdict on the one whose failure is the run's.

    ``recorded`` is what the flight recorder's dumps say together.
    """
    numbers = sorted({event.attempt for event in events if event.stream != "config"}) or [0]
    judged: list[Judgement] = []
    for number in numbers:
        own = [event for event in events if event.attempt == number or (len(numbers) > 1 and _shared(event))]
        attribute(own)
        judged.append(judge(gather(own, identity, [s for s in recorded or [] if s.attempt == number])))
    chosen = choose_attempt(judged)
    facts, incident = chosen.facts, chosen.incident
    verdict = _verdict(chosen, sources, readings)
    attempts = attempt_verdicts(judged, numbers)
    if len(judged) > 1:
        verdict.explanation += attempts_in_words(attempts, attempts[judged.index(chosen)])
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
        attempts=attempts,
        run_facts=_run_facts(events),
    )


def _shared(event: Event) -> bool:
    """Whether nothing tells which attempt a launcher's or a kernel's line belongs to; every attempt may need it."""
    return event.stream in {"launcher", "scheduler", "kernel", "config"} and "attempt" not in event.told


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
        explanation=explain(judged),
        evidence=[evidence_of(event) for event in evidence],
        alternatives=alternatives(judged),
        missing=what_is_missing(facts, incident, sources, readings),
        rulings=rulings(judged),
    )
    verdict.remedies = remedies_for(verdict.category, verdict.phase, incident)
    return verdict


def _run_facts(events: list[Event]) -> dict[str, str]:
    """Versions and the like, as far as lines of the logs state them."""
    found: dict[str, str] = {}
    for event in events:
        name, version = event.fields.get("name"), event.fields.get("version")
        if event.role == "context" and version:
            dialect, _slash, identity = event.signature.partition("/")
            found.setdefault(str(name or (dialect if identity == "version" else identity)), str(version))
    return found
