"""From an analysis to plain values that the terminal and the page show: strings, numbers, lists.

Everything here is testable without a terminal or HTML, and every string is already clean (``text.clean``).
Long lists are folded here, so that all reports fold alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logforensics import __version__
from logforensics.language import _, list_ranks, several
from logforensics.model import FATES, Alternative, CollectiveState, Evidence, RankState
from logforensics.render.folding import ExceptionRow, folded
from logforensics.render.names import name_list
from logforensics.render.run_facts import (
    first_timeouts,
    launcher_of,
    nodes_of,
    ranks_seen,
    strategy_of,
    versions_of,
)
from logforensics.render.text import clean, clock_time, day, size, who, without_folders
from logforensics.render.words import CONFIDENCE_WORDS, PHASE_WORDS, STATUS_WORDS, fate_words
from logforensics.wording import SURE

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

_MOST_FATES = 16
_MOST_COLLECTIVES = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an excerpt; ``hit`` marks the line that the evidence is."""

    number: int
    text: str
    hit: bool


@dataclass(frozen=True, slots=True)
class Quote:
    """A piece of evidence: where it is, who said it, when, and the lines around it.

    ``message`` is what it says in one line; ``text`` is all of it as the log has it, on one line.
    """

    place: str
    who: str
    time: str
    text: str
    lines: list[Line]
    also: list[str] = field(default_factory=list)
    message: str = ""
    event_id: int = -1

    @property
    def digits(self) -> int:
        """How wide the line numbers are."""
        return max((len(str(line.number)) for line in self.lines), default=0)


@dataclass(frozen=True, slots=True)
class ChainRow:
    """One step of the causal chain."""

    time: str
    what: str
    because: str
    place: str
    event_id: int = -1


@dataclass(frozen=True, slots=True)
class FateRow:
    """Ranks that met the same fate for the same reason."""

    fate: str
    words: str
    ranks: str
    count: int
    last_step: str
    ended: str
    why: str


@dataclass(frozen=True, slots=True)
class CallRow:
    """What ranks called that differs from the others' call; sizes are elements in and out."""

    ranks: str
    operation: str
    sequence: str
    sizes: str


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """A stuck collective: who waits, who is absent, who came with something else."""

    name: str
    waiting: str
    absent: str
    mismatched: list[str]
    issued: str
    calls: list[CallRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RemedyBox:
    """What to do: steps in words, commands to copy."""

    id: str
    title: str
    steps: list[str]
    commands: list[str]


@dataclass(frozen=True, slots=True)
class RulingRow:
    """What one rule of the correlator said; ``ranks`` is "" where it names none."""

    rule: str
    said: str
    ranks: str
    decided: bool


@dataclass(frozen=True, slots=True)
class Page:
    """All that a report shows, in the order in which a reader needs it."""

    status: str
    status_words: str
    category: str
    phase: str
    phase_words: str
    confidence: str
    confidence_name: str
    confidence_words: str
    headline: str
    ranks: str
    nodes: str
    day: str
    explanation: list[str]
    rulings: list[RulingRow]
    evidence: list[Quote]
    exceptions: list[ExceptionRow]
    exceptions_hidden: int
    has_leads: bool
    chain: list[ChainRow]
    fates: list[FateRow]
    collectives: list[CollectiveRow]
    remedies: list[RemedyBox]
    missing: list[str]
    advice: list[str]
    alternatives: list[str]
    attempts: int
    run: list[tuple[str, str]]
    skipped: list[str] = field(default_factory=list)
    version: str = __version__
    collectives_hidden: int = 0
    around: dict[int, list[Line]] = field(default_factory=dict)


def build_page(analysis: Analysis) -> Page:
    """Return the values that reports show."""
    verdict = analysis.verdict
    timeouts = first_timeouts(analysis.events)
    rows, hidden = folded(analysis.first_exceptions, timeouts, set(verdict.ranks))
    return Page(
        status=verdict.status,
        status_words=_(STATUS_WORDS.get(verdict.status, verdict.status)),
        category=verdict.category,
        phase=verdict.phase,
        phase_words=_(PHASE_WORDS.get(verdict.phase, verdict.phase)),
        confidence=verdict.confidence,
        confidence_name=_(SURE[verdict.confidence]),
        confidence_words=_(CONFIDENCE_WORDS[verdict.confidence]),
        headline=clean(verdict.headline),
        ranks=who(verdict.ranks),
        nodes=clean(", ".join(verdict.nodes)),
        day=_day(analysis),
        explanation=_all_clean(verdict.explanation),
        rulings=[
            RulingRow(clean(item.rule), clean(item.said), list_ranks(item.ranks), item.decided)
            for item in verdict.rulings
        ],
        evidence=_quotes(analysis),
        exceptions=rows,
        exceptions_hidden=hidden,
        has_leads=any(row.lead for row in rows),
        chain=_chain(analysis),
        fates=fate_rows(analysis.ranks, suspected=verdict.status == "undetermined"),
        collectives=[_collective(state) for state in analysis.collectives[:_MOST_COLLECTIVES]],
        remedies=[
            RemedyBox(item.id, clean(item.title), _all_clean(item.steps), _all_clean(item.commands))
            for item in verdict.remedies
        ],
        missing=_all_clean(verdict.missing),
        advice=_all_clean(verdict.advice),
        alternatives=[clean(f"{_alternative(item)}: {item.why_less_likely}") for item in verdict.alternatives],
        attempts=max(1, len(analysis.attempts)),
        run=_run(analysis),
        skipped=[clean(f"{note.source}: {note.what}") for note in analysis.notes],
        collectives_hidden=max(len(analysis.collectives) - _MOST_COLLECTIVES, 0),
        around=_around(analysis),
    )


def _all_clean(texts: Iterable[str]) -> list[str]:
    return [clean(text) for text in texts]


def _day(analysis: Analysis) -> str:
    """The day, when the verdict's events share one; else the first and the last."""
    times = [item.time_us for item in analysis.verdict.evidence]
    times += [event.time_us for event in analysis.first_exceptions]
    days = sorted({text for time in times if (text := day(time))})
    if len(days) > 1:
        return _("{first} to {last}").format(first=days[0], last=days[-1])
    return "".join(days)


def _alternative(item: Alternative) -> str:
    if not item.ranks:
        return item.category
    return _("{category} on {ranks}").format(category=item.category, ranks=who(item.ranks))


def _place(source: str, line: int, end_line: int | None = None) -> str:
    return clean(f"{source}:{line}" + (f"-{end_line}" if end_line is not None and end_line > line else ""))


def _quotes(analysis: Analysis) -> list[Quote]:
    """The evidence; a line that a launcher has copied into its own output is one quote with two places."""
    found: dict[tuple[int | None, str], Quote] = {}
    for item in analysis.verdict.evidence:
        known = found.get((item.rank, item.text)) if item.rank is not None else None
        if known is not None:
            known.also.append(_place(item.source, item.line, item.end_line))
        else:
            found[item.rank, item.text if item.rank is not None else f"{item.source}:{item.line}"] = _quote(
                item, analysis
            )
    return list(found.values())


def _lines(around: Sequence[tuple[int, str]], first: int, last: int) -> list[Line]:
    """The lines of an excerpt; none when the excerpt does not hold the place that it is about."""
    lines = [Line(number, clean(text), first <= number <= last) for number, text in around]
    return lines if any(line.hit for line in lines) else []


def _around(analysis: Analysis) -> dict[int, list[Line]]:
    """The lines around each first exception that an excerpt was read for, by event id."""
    return {
        event.event_id: lines
        for event in analysis.first_exceptions
        # first whether there is an excerpt: a line number has to be counted, and in a gigabyte that takes a while
        if event.event_id in analysis.excerpts
        and (lines := _lines(analysis.excerpts[event.event_id], event.line, event.end_line))
    }


def _quote(item: Evidence, analysis: Analysis) -> Quote:
    event = analysis.events[item.event_id] if 0 <= item.event_id < len(analysis.events) else None
    rank, node = who([item.rank]) if item.rank is not None else "", clean(item.node or "")
    return Quote(
        place=_place(item.source, item.line, item.end_line),
        who=_("{ranks} on {nodes}").format(ranks=rank, nodes=node) if rank and node else rank or node,
        time=clock_time(item.time_us),
        text=clean(" ".join(line.strip() for line in item.text.split("\n"))),
        lines=_lines(analysis.excerpts.get(item.event_id, ()), item.line, item.end_line),
        message=clean(without_folders(event.message if event is not None else item.text.split("\n")[0])),
        event_id=item.event_id,
    )


def _chain(analysis: Analysis) -> list[ChainRow]:
    rows = []
    for link in analysis.chain:
        event = analysis.events[link.event_id] if 0 <= link.event_id < len(analysis.events) else None
        place = _place(event.source, event.line) if event is not None else ""
        rows.append(ChainRow(clock_time(link.time_us), clean(link.what), clean(link.because), place, link.event_id))
    return rows


def fate_rows(states: Iterable[RankState], *, suspected: bool = False) -> list[FateRow]:
    """Group the ranks by what became of them, the origin first; what does not fit is one last row.

    ``suspected``: the verdict is not established, so the origin is called a suspect and no more.
    """
    groups: dict[tuple[str, str], list[RankState]] = {}
    for state in states:
        groups.setdefault((state.fate, state.why), []).append(state)
    order = {fate: number for number, fate in enumerate(FATES)}
    ordered = sorted(groups.items(), key=lambda item: (order.get(item[0][0], len(order)), -len(item[1])))
    rows = [_fate_row(fate, why, members, suspected) for (fate, why), members in ordered[:_MOST_FATES]]
    rest = [state for _, members in ordered[_MOST_FATES:] for state in members]
    if rest:
        rows.append(_fate_row("unknown", _("other reasons; see --json"), rest))
    return rows


def _fate_row(fate: str, why: str, members: list[RankState], suspected: bool = False) -> FateRow:
    steps = sorted({state.last_step for state in members if state.last_step is not None})
    return FateRow(
        fate=fate,
        words=fate_words(suspected).get(fate, fate),
        ranks=list_ranks([state.rank for state in members]),
        count=len(members),
        last_step="" if not steps else str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}",
        ended=_ended(members),
        why=clean(why),
    )


def _ended(members: list[RankState]) -> str:
    """How the processes ended, the commonest first: "SIGTERM", "exit 1 (3), SIGKILL (1)"."""
    counts: Counter[str] = Counter()
    for state in members:
        if state.signal:
            counts[clean(state.signal)] += 1
        elif state.exit_code is not None:
            counts[_("exit {code}").format(code=state.exit_code)] += 1
    if len(counts) == 1 and counts.total() == len(members):
        return next(iter(counts))
    return ", ".join(f"{name} ({count})" if len(members) > 1 else name for name, count in counts.most_common(3))


def _collective(state: CollectiveState) -> CollectiveRow:
    name = clean(state.operation or _("a collective"))
    if state.sequence is not None:
        name = _("{operation} number {sequence}").format(operation=name, sequence=state.sequence)
    if state.process_group:
        name = _("{operation} in group {group}").format(operation=name, group=clean(state.process_group))
    calls = _calls(state)
    return CollectiveRow(
        name=name,
        waiting=who(state.waiting),
        absent=who(state.absent),
        mismatched=[", ".join(filter(None, (f"{call.ranks}: {call.operation}", *_said(call)))) for call in calls],
        issued=clock_time(state.issued_us),
        calls=calls,
    )


def _said(call: CallRow) -> tuple[str, str]:
    return (
        _("number {sequence}").format(sequence=call.sequence) if call.sequence else "",
        _("elements {sizes}").format(sizes=call.sizes) if call.sizes else "",
    )


def _calls(state: CollectiveState) -> list[CallRow]:
    """The calls that differ, ranks with the same one together."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for item in state.mismatched:
        key = tuple(item.get(name) for name in ("operation", "sequence", "numel_in", "numel_out"))
        alike.setdefault(key, []).append(int(item.get("rank", -1)))
    return [
        CallRow(
            ranks=who(rank for rank in ranks if rank >= 0) or _("a rank"),
            operation=clean(operation or _("a collective")),
            sequence="" if sequence is None else str(sequence),
            sizes=" → ".join(
                f"{size:,}" if isinstance(size, int) else clean(size) for size in sizes if size is not None
            ),
        )
        for (operation, sequence, *sizes), ranks in alike.items()
    ]


def _run(analysis: Analysis) -> list[tuple[str, str]]:
    seen = ranks_seen(analysis)
    read = sum(source.size for source in analysis.sources)
    nodes = nodes_of(analysis)
    files, events, notes = len(analysis.sources), len(analysis.events), len(analysis.notes)
    amount = [
        several("{count} file", "{count} files", files).format(count=f"{files:,}"),
        size(read),
        several("{count} event", "{count} events", events).format(count=f"{events:,}"),
    ]
    skipped = several("{count} note on what was skipped", "{count} notes on what was skipped", notes).format(
        count=notes
    )
    facts = {
        _("world size"): str(analysis.identity.world_size or ""),
        _("ranks seen"): list_ranks(seen),
        _("nodes"): name_list(nodes),
        _("attempts"): str(len(analysis.attempts)) if len(analysis.attempts) > 1 else "",
        _("launcher"): launcher_of(analysis) or "",
        _("strategy"): strategy_of(analysis) or "",
        _("versions"): ", ".join(f"{name} {version}" for name, version in versions_of(analysis).items()),
        _("read"): ", ".join(amount) + (f"; {skipped.format(count=notes)}" if notes else ""),
    }
    return [(name, clean(value)) for name, value in facts.items() if value]
