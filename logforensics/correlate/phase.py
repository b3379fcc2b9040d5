"""Where in its life the run was when it failed: from what its ranks had reached by then."""

from __future__ import annotations

from logforensics.correlate.facts import Facts, is_training_step
from logforensics.correlate.incident import Incident
from logforensics.model import Event

_BY_ACTIVITY = {
    "checkpoint_save": "checkpoint",
    "checkpoint_load": "checkpoint",
    "epoch_end": "epoch_end",
    "rendezvous": "rendezvous",
    "shutdown": "shutdown",
}
# Categories whose failures have one natural phase when nothing else tells.
_BY_CATEGORY = {
    "rendezvous": "rendezvous",
    "missing_node": "rendezvous",
    "duplicate_gpu": "first_collective",
    "network_interface": "first_collective",
}
# Set-up needs tens of collectives at most; a group that counts more is training.
_MANY_COLLECTIVES = 200
_EARLY = {"launch", "model_load", "data_preparation", "download"}
_GROUP_UP = {"init"}


def phase_of(incident: Incident, facts: Facts) -> str:
    """Return the phase of an incident (design vocabulary); "unknown" when nothing was reached or said."""
    if incident.category == "no_failure" or not incident.events:
        return "unknown"
    if incident.phase:
        return incident.phase
    first = incident.first
    for event in incident.events:
        said = event.fields.get("phase") or _BY_ACTIVITY.get(event.fields.get("activity", ""))
        if said:
            return str(said)
    if incident.category == "checkpoint_error":
        return "checkpoint"
    doing = _last_doing(incident, facts)
    if doing is not None and doing.fields["activity"] in {"checkpoint_save", "epoch_end"} and _fits(incident, doing):
        return _BY_ACTIVITY[doing.fields["activity"]]
    last = max(incident.events, key=lambda event: event.event_id)
    if any(is_training_step(event) and _not_after(event, last) for event in facts.events):
        return "mid_training"
    recorded = [event for event in incident.events if event.stream == "flight_recorder"]
    if any(event.fields.get("activity") == "training" for event in recorded):
        return "mid_training"
    if any(event.fields.get("activity") == "evaluation" for event in incident.events):
        return "mid_training"
    if any((event.sequence or 0) > _MANY_COLLECTIVES for event in (*facts.timeouts, *facts.recorder)):
        return "mid_training"
    if incident.category in {"config_error", "import_error"}:
        return "launch"
    if _collective_spoken(facts, first):
        return "first_collective"
    if incident.category in _BY_CATEGORY:
        return _BY_CATEGORY[incident.category]
    activities = {event.fields["activity"] for event in facts.activities if _not_after(event, first)}
    own = {event.fields.get("activity") for event in incident.events}
    if own & {"training", "data_loading", "evaluation"} or activities & {"training", "evaluation"}:
        return "mid_training"
    if own & _GROUP_UP:
        return "first_collective"
    if own & _EARLY or activities & _EARLY or facts.events:
        return "launch" if (own & _EARLY or activities or facts.causes or facts.exits) else "unknown"
    return "unknown"


def _not_after(event: Event, limit: Event) -> bool:
    return event.event_id <= limit.event_id


def _last_doing(incident: Incident, facts: Facts) -> Event | None:
    """The last line before the failure that says what the failed rank (or a rank without a name) was doing."""
    first = incident.first
    said = [
        event
        for event in (*facts.activities, *facts.progress)
        if event.event_id < first.event_id and event.rank in {None, *incident.ranks} and "activity" in event.fields
    ]
    return max(said, key=lambda event: event.event_id, default=None)


def _fits(incident: Incident, last: Event) -> bool:
    """A failure of the disk or of a collective right after "saving" belongs to the checkpoint; an OOM need not."""
    return (
        incident.category
        in {
            "disk_full",
            "collective_mismatch",
            "unknown_timeout",
            "barrier_timeout",
            "slow_rank",
            "uneven_inputs",
            "unknown_exit",
        }
        or last.fields["activity"] == "checkpoint_save"
    )


def _collective_spoken(facts: Facts, limit: Event) -> bool:
    """Whether anything shows that process groups or communicators were being used, or built."""
    return any(
        event.kind in {"collective", "timeout"}
        or event.operation is not None
        or (event.kind == "network" and event.stream == "nccl")
        for event in facts.events
        if event.event_id <= limit.event_id or event.kind == "timeout"
    )
