"""Says in words why an incident was chosen, what speaks against it, and which rules spoke."""

from __future__ import annotations

from logforensics.correlate.collectives import Stuck
from logforensics.correlate.facts import Facts, distinct, exit_code_of
from logforensics.correlate.incident import OWN_FAILURE, Incident, before
from logforensics.correlate.judgement import VAGUE, Judgement
from logforensics.language import _, name_ranks, several
from logforensics.model import Alternative, Event, Ruling
from logforensics.wording import happened

_MOST_ALTERNATIVES = 5


def explain(judged: Judgement) -> list[str]:
    """Return the sentences that say what the verdict rests on and why the louder lines are not the cause."""
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
        lines.append(_survived_in_words(judged.survived))
    independent = _independent(judged)
    if independent:
        lines.append(_("Other failures in their own right, in order: {failures}.").format(failures=independent))
    return lines


def _survived_in_words(survived: list[Event]) -> str:
    return several(
        "{count} earlier failure was caught and the run went on; it is not the cause.",
        "{count} earlier failures were caught and the run went on; they are not the cause.",
        len(survived),
    ).format(count=len(survived))


def _independent(judged: Judgement) -> str:
    """The failures beside the chosen one that no rule explains by it, in the order in which they came."""
    chosen = judged.incident
    others = [
        rival
        for rival in judged.rivals
        if rival.rule == OWN_FAILURE
        and rival.tier == 0
        and rival.consequence_of is None
        and rival.ranks
        and rival.category not in VAGUE
        and not set(rival.ranks) & set(chosen.ranks)
    ]
    others.sort(key=lambda rival: rival.first.event_id)
    told = [
        _("{ranks} {happened}").format(ranks=name_ranks(rival.ranks), happened=happened(rival))
        for rival in others[:_MOST_ALTERNATIVES]
    ]
    return "; ".join(told)


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


def alternatives(judged: Judgement) -> list[Alternative]:
    """Return the other explanations that were considered, with the reason against each."""
    chosen = judged.incident
    found: list[Alternative] = []
    for rival in judged.rivals:
        if rival.category in {chosen.category, *VAGUE} and set(rival.ranks) <= set(chosen.ranks):
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


def rulings(judged: Judgement) -> list[Ruling]:
    """Return what every rule said that spoke: the deciding one, then those it outvoted, then those beside it."""
    chosen, facts = judged.incident, judged.facts
    found = [Ruling(chosen.rule, _said(chosen), sorted(chosen.ranks), decided=True)]
    found += [Ruling(item.rule, item.consequence_of or _said(item), sorted(item.ranks)) for item in judged.rivals]
    found += [Ruling("stuck-collective", _stuck_in_words(stuck), stuck.waiting) for stuck in judged.stuck]
    if judged.survived:
        ranks = distinct(event.rank for event in judged.survived)
        found.append(Ruling("survived", _survived_in_words(judged.survived), ranks))
    launcher = _launcher_says(facts, chosen)
    if launcher:
        found.append(Ruling("launcher-names-another", launcher, []))
    return found


def _said(incident: Incident) -> str:
    """What a rule rests on; a failure's own line speaks for itself."""
    if incident.why:
        return "; ".join(incident.why)
    return happened(incident)


def _stuck_in_words(stuck: Stuck) -> str:
    state = stuck.state()
    where = state.operation or _("a collective")
    if state.sequence is not None:
        where = _("{operation} number {sequence}").format(operation=where, sequence=state.sequence)
    waiting = name_ranks(stuck.waiting) if stuck.waiting else _("nobody whose log is here")
    text = _("in {operation} wait: {waiting}").format(operation=where, waiting=waiting)
    if stuck.absent:
        text += "; " + _("absent: {absent}").format(absent=name_ranks(stuck.absent))
    if stuck.outliers:
        odd = distinct(call.rank for call in stuck.outliers)
        text += "; " + _("with another operation or size: {ranks}").format(ranks=name_ranks(odd))
    return text
