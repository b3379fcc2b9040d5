"""Facts about the run that reports show beside the verdict: launcher, strategy, versions, lead times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logforensics.model import Event

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

# The signatures that only one launcher can leave behind; the outermost launcher first.
_LAUNCHERS = (
    (
        "deepspeed",
        (
            "deepspeed/process-spawned",
            "deepspeed/killing-subprocess",
            "deepspeed/exits-",
            "deepspeed/launcher-",
        ),
    ),
    (
        "deepspeed",
        ("deepspeed/world-info", "deepspeed/rank-mapping", "deepspeed/runner-command", "deepspeed/pdsh-"),
    ),
    ("accelerate", ("accelerate/command-failed", "accelerate/launch-")),
    ("torchrun", ("torchelastic/",)),
    ("mpirun", ("mpi/",)),
    ("ray", ("ray/",)),
    ("slurm", ("slurm/",)),
)
_STRATEGIES = (("deepspeed", ("deepspeed/",)), ("fsdp", ("fsdp/",)), ("ddp", ("ddp/",)))
_NOT_VERSIONS = {"launcher", "strategy"}


def first_timeouts(events: Iterable[Event]) -> dict[int, Event]:
    """Return for each attempt its first line that says that a rank waited in vain: lead times count to it."""
    found: dict[int, Event] = {}
    for event in events:
        if event.kind == "timeout" and event.role == "symptom" and event.time_us is not None:
            found.setdefault(event.attempt, event)
    return found


def lead_seconds(event: Event, timeout: Event | None) -> float | None:
    """Return how long before the timeout an event came: negative after it, None when unknown."""
    if timeout is None or timeout.time_us is None or event.time_us is None:
        return None
    return round((timeout.time_us - event.time_us) / 1e6, 3)


def launcher_of(analysis: Analysis) -> str | None:
    """Return who started the ranks, as far as the logs show it."""
    return analysis.facts.get("launcher") or _by_signature(analysis.events, _LAUNCHERS)


def strategy_of(analysis: Analysis) -> str | None:
    """Return how the ranks share the work (ddp, fsdp, deepspeed), as far as the logs show it."""
    return analysis.facts.get("strategy") or _by_signature(analysis.events, _STRATEGIES)


def versions_of(analysis: Analysis) -> dict[str, str]:
    """Return the versions that the logs state, by name."""
    return {name: value for name, value in sorted(analysis.facts.items()) if name not in _NOT_VERSIONS}


def nodes_of(analysis: Analysis) -> list[str]:
    """Return the nodes that ranks are known to have run on."""
    return sorted({state.node for state in analysis.ranks if state.node})


def ranks_seen(analysis: Analysis) -> list[int]:
    """Return the ranks that any line is about."""
    return sorted({event.rank for event in analysis.events if event.rank is not None})


def _by_signature(events: Iterable[Event], table: tuple[tuple[str, tuple[str, ...]], ...]) -> str | None:
    seen = {event.signature for event in events}
    return next((name for name, starts in table if any(one.startswith(starts) for one in seen)), None)
