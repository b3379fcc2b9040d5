"""An incident: one failure, on one rank or on several at once, with all the events that tell of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from logforensics.clock import SECOND
from logforensics.model import Event, Evidence

# Two clocks of one cluster agree to about this; a local failure's own line may also be flushed this late.
CLOCK_SLACK_US = 2 * SECOND
LATE_LINE_US = 30 * SECOND

# The rule of incidents that a failure's own lines tell of.
OWN_FAILURE = "own-failure"
# Times that a line has of its own, not from the lines around it.
_TIMED = {"stamped", "derived"}
_OUTSIDE = {"scheduler", "kernel", "launcher"}


@dataclass(slots=True)
class Incident:
    """A failure that may be the cause of the rest.

    ``tier`` 0: a failure in its own right; 1: cause or consequence; 2: only inferred from silence.
    ``rule`` names the rule that found it, ``why`` says what it rests on.
    """

    category: str
    events: list[Event]
    ranks: list[int]
    rule: str
    tier: int = 0
    scope: str = "rank"
    status: str = "diagnosed"
    phase: str | None = None
    why: list[str] = field(default_factory=list)
    confidence: str | None = None
    consequence_of: str | None = None
    leading: Event | None = None  # the event to point at, where a rule knows better than the order

    @property
    def first(self) -> Event:
        """The earliest event."""
        own = [event for event in self.events if event is not self.leading]
        return min(own or self.events, key=lambda event: event.event_id)

    @property
    def evidence(self) -> list[Event]:
        """The events, the one to point at first.

        A rule that inferred the incident has ordered them. A failure's own words come first, in the order in
        which they were said; a line without a rank gives way to one with a rank that says the same, and a
        scheduler's or kernel's line to one that names the rank.
        """
        if self.rule != OWN_FAILURE:
            return self.events
        named = {event.signature for event in self.events if event.rank is not None}
        outside = any(event.rank is not None and event.stream in _OUTSIDE for event in self.events)
        return sorted(
            self.events,
            key=lambda event: (
                event is not self.leading,
                event.fields.get("error_file", False),
                {"cause": 0, "either": 1}.get(event.role, 2),
                event.rank is None and (event.signature in named or (outside and event.stream in _OUTSIDE)),
                event.event_id,
            ),
        )


def evidence_of(event: Event) -> Evidence:
    """Return the place that an event was read from."""
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


def before(first: Event, second: Event, slack_us: int = CLOCK_SLACK_US) -> bool | None:
    """Return whether one event certainly came before another; None when the logs do not tell.

    Inside one writer's file order is certain; elsewhere times decide as far as their uncertainty allows. In a file of
    several ranks' lines order counts where times do not tell otherwise: it may have been merged.
    """
    together = first.source == second.source and first.section == second.section
    two_ranks = first.rank is not None and second.rank is not None and first.rank != second.rank
    if together and not (two_ranks and {first.time_basis, second.time_basis} <= _TIMED):
        return first.offset < second.offset
    by_time = _by_time(first, second, slack_us)
    return first.offset < second.offset if together and by_time is None else by_time


def _by_time(first: Event, second: Event, slack_us: int) -> bool | None:
    if first.time_us is None or second.time_us is None:
        return None
    distance = second.time_us - first.time_us
    doubt = first.time_error_us + second.time_error_us + slack_us
    if abs(distance) <= doubt:
        return None
    return distance > 0
