"""What became of every rank, and why: nobody is left without a word."""

from __future__ import annotations

from logforensics.correlate.facts import Facts, RankFacts
from logforensics.correlate.incident import Incident
from logforensics.language import _
from logforensics.model import RankState

_NEVER_STARTED = {"missing_node", "rendezvous"}


def rank_states(facts: Facts, incident: Incident) -> list[RankState]:
    """Return one state for each rank that the logs speak of or announce, in rank order."""
    return [_state(rank, facts, incident) for rank in facts.expected]


def _state(rank: int, facts: Facts, incident: Incident) -> RankState:
    own = facts.ranks.get(rank)
    identity = facts.identity
    state = RankState(
        rank=rank,
        node=identity.rank_node.get(rank),
        local_rank=identity.rank_local.get(rank),
        pid=identity.rank_pid.get(rank),
    )
    if own is None:
        started = incident.category not in _NEVER_STARTED
        state.fate = "unknown" if started else "not_started"
        state.why = _("no log of this rank") if started else _("it never joined")
        return state
    code = own.exit_code
    state.last_step = own.last_step
    times = [event.time_us for event in own.events if event.time_us is not None]
    state.last_seen_us = max(times) if times else None
    last = own.last_activity
    state.last_activity = last.fields.get("activity") if last else None
    state.exit_code = code
    if code is not None and code < 0:
        state.signal = _signal_name(-code)
    if own.causes:
        state.first_exception = own.causes[0].event_id
    if state.node is None:
        state.node = next((event.node for event in own.events if event.node), None)
    state.fate, state.why = _fate(rank, own, facts, incident)
    return state


def _fate(rank: int, own: RankFacts, facts: Facts, incident: Incident) -> tuple[str, str]:
    if rank in incident.ranks and incident.category != "no_failure":
        return "origin", incident.why[0] if incident.why else _("it failed first")
    if own.timeouts:
        return "timed_out", _("it waited for the others until the timeout")
    if own.kept_waiting:
        return "timed_out", _("the flight recorder shows it in a collective that others did not join")
    if own.symptoms:
        return "peer_lost", _("it lost its connection to a peer")
    if own.stopped or own.exit_code in {-15, -2} or (own.exit_code == -9 and incident.tier == 0):
        return "torn_down", _("its launcher stopped it after another rank had failed")
    if own.causes:
        return "unknown", _("it failed as well, later or on its own")
    if own.exit_code == 0 or any(event.fields.get("activity") == "finished" for event in own.activities):
        return "finished", _("it ended normally")
    if own.exit_code == -6:
        return "timed_out", _("it was aborted, as the watchdog does after a timeout")
    if incident.category == "no_failure":
        return "finished" if facts.finished else "unknown", _("no sign of a failure")
    return "silent", _("its log just stops")


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
