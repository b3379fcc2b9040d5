"""The causal chain: from the first failure to the last torn-down rank, each step with its reason."""

from __future__ import annotations

from logforensics.correlate.facts import Facts, wrote
from logforensics.correlate.incident import Incident
from logforensics.language import _, name_ranks, several
from logforensics.model import ChainLink, Event, RankState
from logforensics.timeline import issue_time

_MOST_LINKS = 24


def first_exceptions(facts: Facts, survived: list[Event]) -> list[Event]:
    """Return the first failure line of every rank that has one, earliest first; survived ones do not count."""
    gone = {id(event) for event in survived}
    found: list[Event] = []
    for own in facts.ranks.values():
        lines = [
            event for event in (*own.causes, *own.symptoms, *own.timeouts) if id(event) not in gone and wrote(event)
        ]
        if lines:
            found.append(min(lines, key=lambda event: event.event_id))
    return sorted(found, key=lambda event: event.event_id)


def build_chain(facts: Facts, incident: Incident, states: list[RankState]) -> list[ChainLink]:
    """Return what happened in order, like things of many ranks folded into one step."""
    if incident.category == "no_failure":
        return []
    links: list[ChainLink] = []
    first = incident.evidence[0] if incident.evidence else None
    who = name_ranks(incident.ranks) if incident.ranks else _("a rank that the logs do not name")
    if incident.scope == "run":
        who = _("the whole run")
    if first is not None:
        links.append(
            ChainLink(
                first.event_id,
                incident.ranks[0] if len(incident.ranks) == 1 else None,
                first.time_us,
                f"{who}: {first.message[:160]}",
                _("the first failure") if incident.tier < 2 else _("the last thing known of it"),
            )
        )
    cause = _missed(incident, facts)
    links += _waits(facts, cause)
    links += _fate_link(
        states, "peer_lost", _("{ranks} lost the connection to a peer"), _("the peer's process was gone"), facts
    )
    links += _fate_link(states, "timed_out", _("{ranks} gave up waiting"), cause, facts)
    links += _fate_link(states, "torn_down", _("the launcher stopped {ranks}"), _("a rank had failed"), facts)
    return links[:_MOST_LINKS]


def _missed(incident: Incident, facts: Facts) -> str:
    """Why the others waited: a guilty rank was missing, unless it waited as well."""
    absent = [rank for rank in incident.ranks if not (rank in facts.ranks and facts.ranks[rank].timeouts)]
    if not absent:
        return _("of the failure above")
    return several("{ranks} was missing", "{ranks} were missing", len(absent)).format(ranks=name_ranks(absent))


def _waits(facts: Facts, cause: str) -> list[ChainLink]:
    timeout = facts.first_timeout
    start = issue_time(timeout) if timeout is not None else None
    if timeout is None:
        timeout = next((event for event in facts.recorder if event.role == "symptom"), None) if facts.recorded else None
        start = timeout.time_us if timeout is not None else None
    if timeout is None or start is None:
        return []
    operation = timeout.operation or _("a collective")
    if timeout.sequence is not None:
        operation = _("{operation} number {sequence}").format(operation=operation, sequence=timeout.sequence)
    what = _("the others enter {operation} and wait").format(operation=operation)
    return [ChainLink(timeout.event_id, None, start, what, cause)]


def _fate_link(states: list[RankState], fate: str, what: str, because: str, facts: Facts) -> list[ChainLink]:
    ranks = [state.rank for state in states if state.fate == fate]
    if not ranks:
        return []
    told = [
        event
        for rank in ranks
        if (own := facts.ranks.get(rank))
        for event in ((own.timeouts or own.symptoms)[:1] if fate != "torn_down" else own.stopped[:1])
    ]
    first = min(told, key=lambda event: event.event_id, default=None)
    return [
        ChainLink(
            first.event_id if first else -1,
            ranks[0] if len(ranks) == 1 else None,
            first.time_us if first else None,
            what.format(ranks=name_ranks(ranks)),
            because,
        )
    ]
