"""A run that was started again: what became of each attempt, which one to speak of, and what came back."""

from __future__ import annotations

from collections.abc import Sequence

from logforensics.correlate.incident import evidence_of
from logforensics.correlate.judgement import Judgement
from logforensics.correlate.phase import phase_of
from logforensics.language import _
from logforensics.model import AttemptVerdict
from logforensics.wording import SURE, headline

# So many times as far as the failed attempt came a later one must come for its failure to count as overcome.
_OVERCOME = 2
# A run that failed in its first steps says little about how far it would have come.
_FEW_STEPS = 5
_MOST_TOLD = 4


def choose_attempt(judged: Sequence[Judgement]) -> Judgement:
    """Return the attempt whose failure is the run's: the first, unless a later one left it far behind.

    What fails after a restart is often only that the first failure had not been cleaned up. But where the run trained
    on and came much further, it is the later failure that ended it.
    """
    failed = [item for item in judged if item.incident.category != "no_failure"]
    if not failed:
        return judged[0]
    chosen = failed[0]
    for item in failed[1:]:
        reached, before = _last_step(item), _last_step(chosen)
        if _cause(item) != _cause(chosen) and reached is not None and before is not None:
            chosen = item if reached >= _OVERCOME * max(before, _FEW_STEPS) else chosen
    return chosen


def attempt_verdicts(judged: Sequence[Judgement], numbers: Sequence[int]) -> list[AttemptVerdict]:
    """Return one line for each attempt, in order."""
    found = []
    for number, item in zip(numbers, judged, strict=True):
        incident = item.incident
        own = [e for e in item.facts.events if e.attempt == number and e.stream not in {"config", "kernel"}]
        times = [event.time_us for event in own if event.time_us is not None]
        told = incident.evidence[:1] if incident.category != "no_failure" else []
        found.append(
            AttemptVerdict(
                number=number,
                status=incident.status,
                category=incident.category,
                ranks=sorted(incident.ranks),
                phase=phase_of(incident, item.facts),
                confidence=item.confidence,
                headline=headline(incident, item.facts),
                evidence=evidence_of(told[0]) if told else None,
                start_us=min(times, default=None),
                end_us=max(times, default=None),
                last_step=_last_step(item),
            )
        )
    return found


def attempts_in_words(attempts: Sequence[AttemptVerdict], chosen: AttemptVerdict) -> list[str]:
    """Say what failed in the first and in the last attempts, and what came back."""
    kept = list(attempts)
    if len(kept) > _MOST_TOLD:
        kept = [*kept[: _MOST_TOLD // 2], *kept[-_MOST_TOLD // 2 :]]
    lines = [
        _("Attempt {number}: {headline} ({confidence} confidence).").format(
            number=item.number, headline=item.headline, confidence=_(SURE[item.confidence])
        )
        for item in kept
    ]
    if len(attempts) > len(kept):
        lines.insert(_MOST_TOLD // 2, _("{count} more attempts in between.").format(count=len(attempts) - len(kept)))
    again = [item for item in attempts if (item.category, item.ranks) == (chosen.category, chosen.ranks)]
    earlier = [item for item in attempts if item.number < chosen.number and item.category != "no_failure"]
    if len(again) == len(attempts):
        lines.append(_("Every attempt failed the same way: starting the run again does not help."))
    elif len(again) > 1:
        numbers = ", ".join(str(item.number) for item in again)
        lines.append(_("The same failure came back in attempts {numbers}.").format(numbers=numbers))
    if earlier and len(again) == 1:
        lines.append(
            _("What failed before attempt {number} was overcome: this attempt got to step {step}.").format(
                number=chosen.number, step=chosen.last_step
            )
        )
    return lines


def _cause(item: Judgement) -> tuple[str, tuple[int, ...]]:
    return item.incident.category, tuple(sorted(item.incident.ranks))


def _last_step(item: Judgement) -> int | None:
    steps = [event.fields["step"] for event in item.facts.progress if "step" in event.fields]
    return max(steps, default=None)
