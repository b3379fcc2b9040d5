"""The pipeline, and the public call: paths in, a diagnosis out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from logforensics import patterns
from logforensics.attempts import number_attempts
from logforensics.clock import parse_stamp
from logforensics.correlate.verdict import Diagnosis, diagnose
from logforensics.error_file import ErrorFileError, read_error_file
from logforensics.excerpts import Excerpt, read_excerpts
from logforensics.identity import Identity, resolve_identity
from logforensics.language import _
from logforensics.model import AttemptVerdict, ChainLink, CollectiveState, Event, Note, RankState, Verdict
from logforensics.node_clocks import Offset
from logforensics.places import settle
from logforensics.reader import Reading, Scanners, read_source
from logforensics.signatures import SignatureSet, signatures_with
from logforensics.sources import InputError, Source, Sources, collect
from logforensics.structured import read_configs, read_dumps
from logforensics.timeline import build_timeline, to_frame

if TYPE_CHECKING:
    import polars as pl

# With more first exceptions than these, reports show groups of them and quote the evidence only.
_MOST_QUOTED = 12


@dataclass
class Analysis:
    """What a run's logs say. ``verdict`` is the answer, ``timeline`` everything it rests on.

    ``ranks`` has one state for each rank that the logs speak of or announce; ``first_exceptions`` one event
    for each rank that had one, earliest first. ``excerpts`` maps the id of an event that the verdict rests on
    to the lines around it, as (line number, text). ``paths`` is what the caller asked for. ``attempts`` has one entry
    for each time that the run was started, in order; the verdict is on one of them.
    """

    verdict: Verdict
    ranks: list[RankState]
    first_exceptions: list[Event]
    chain: list[ChainLink]
    collectives: list[CollectiveState]
    events: list[Event]
    sources: list[Source]
    notes: list[Note]
    identity: Identity
    attempts: list[AttemptVerdict] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    excerpts: dict[int, Excerpt] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    @cached_property
    def timeline(self) -> pl.DataFrame:
        """The events as a polars frame, one row each, in causal reading order (README, "The timeline")."""
        return to_frame(self.events)

    def event(self, event_id: int) -> Event:
        """Return the event with this id."""
        return self.events[event_id]


def cache_folder() -> Path:
    """Return the user's cache folder for compiled scan databases; ``LOGFORENSICS_CACHE`` names another one."""
    import platformdirs

    if own := os.environ.get("LOGFORENSICS_CACHE"):
        return Path(own)

    return Path(platformdirs.user_cache_dir("logforensics"))


def analyze(
    paths: str | Path | Iterable[str | Path],
    *,
    parsers: Path | None = None,
    world_size: int | None = None,
    since: str | None = None,
    until: str | None = None,
    redact: bool = False,
    progress: Callable[[int, int], None] | None = None,
    use_cache: bool = True,
) -> Analysis:
    """Diagnose the run whose logs are at ``paths`` (files, folders, globs, archives, "-" for stdin).

    Args:
        paths: one path or several; folders are searched whole.
        parsers: a folder of your own signatures, used beside the shipped ones.
        world_size: the number of ranks, where the logs do not say.
        since: leave out what came before this time (as the logs write it, e.g. "2026-11-30 19:11:05").
        until: leave out what came after this time. Events without a time stay.
        redact: replace secrets, addresses, and names of people and hosts by aliases, in everything that is said.
        progress: called with (bytes done, bytes in all) while scanning.
        use_cache: keep the compiled scan database in the user's cache folder.

    Raises:
        InputError: nothing readable at ``paths``, or ``since``/``until`` is no time.
        SignatureError: ``parsers`` is no folder of dialects.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    low, high = _moment(since), _moment(until)
    cache = cache_folder() if use_cache else None
    if cache is not None:
        patterns.remember_from(cache)
    signatures = signatures_with(parsers, cache)
    with collect(given) as sources:
        for problem in signatures.problems:
            sources.note(_("your signatures"), problem)
        scanners = Scanners(signatures, cache)
        readings = read_sources(sources, scanners, signatures, progress)
        dumped, recorded = read_dumps(sources, readings, world_size)
        readings += dumped + read_configs(sources)
        identity = resolve_identity(readings)
        if world_size is not None:
            identity.world_size = world_size
        clocks: list[Offset] = []
        events = build_timeline(readings, clocks)
        if low is not None or high is not None:
            events = _between(events, low, high, sources)
        number_attempts(events, [source.name for source in sources.found if source.hints.attempt is not None])
        diagnosis = diagnose(events, identity, readings, sources, recorded)
        analysis = _analysis(diagnosis, events, identity, sources)
        for clock in clocks:
            told = _("{offset} s (±{error} s), corrected, from {count} common moments")
            analysis.facts[_("clock of {host}").format(host=clock.domain)] = told.format(
                offset=f"{clock.offset_us / 1e6:+.1f}", error=f"{clock.error_us / 1e6:.1f}", count=clock.moments
            )
        analysis.paths = [str(path) for path in given]
        _quote(analysis)
        if cache is not None:
            patterns.remember_in(cache)
        if sources.spooled:  # what was unpacked is gone after this
            for event in events:
                settle(event)
        if redact:  # takes a fifth of a second to load
            from logforensics.redact.analysis import redacted

            return redacted(analysis)
        return analysis


def _analysis(diagnosis: Diagnosis, events: list[Event], identity: Identity, sources: Sources) -> Analysis:
    return Analysis(
        verdict=diagnosis.verdict,
        ranks=diagnosis.ranks,
        first_exceptions=diagnosis.first_exceptions,
        chain=diagnosis.chain,
        collectives=diagnosis.collectives,
        events=events,
        sources=sources.found,
        notes=sources.notes,
        identity=identity,
        attempts=diagnosis.attempts,
        facts=diagnosis.run_facts,
    )


def _between(events: list[Event], low: int | None, high: int | None, sources: Sources) -> list[Event]:
    kept = [
        event
        for event in events
        if event.time_us is None or ((low is None or event.time_us >= low) and (high is None or event.time_us <= high))
    ]
    if len(kept) < len(events):
        sources.note(
            _("the time chosen"),
            _("{count} of {events} events are outside; left out").format(
                count=len(events) - len(kept), events=len(events)
            ),
        )
    for number, event in enumerate(kept):
        event.event_id = number
    return kept


def _moment(text: str | None) -> int | None:
    if text is None:
        return None
    stamp = parse_stamp(text)
    time = stamp.resolve(0) if stamp is not None and stamp.year is not None else None
    if time is None:
        raise InputError(f"{text!r} is no time; write it like 2026-11-30 19:11:05")
    return time


def _quote(analysis: Analysis) -> None:
    """Put the log's own lines into the evidence, and those around it beside it."""
    told = {evidence.event_id for evidence in analysis.verdict.evidence}
    if len(analysis.first_exceptions) <= _MOST_QUOTED:
        told.update(event.event_id for event in analysis.first_exceptions)
    lines = [event for number in sorted(told) if (event := analysis.events[number]).stream != "flight_recorder"]
    analysis.excerpts = read_excerpts(lines, analysis.sources)
    for evidence in analysis.verdict.evidence:
        shown = dict(analysis.excerpts.get(evidence.event_id, []))
        own = [shown[number] for number in range(evidence.line, evidence.end_line + 1) if number in shown]
        if own and analysis.events[evidence.event_id].stream != "error_file":
            evidence.text = "\n".join(own)


def read_sources(
    sources: Sources,
    scanners: Scanners,
    signatures: SignatureSet,
    progress: Callable[[int, int], None] | None = None,
) -> list[Reading]:
    """Read every source, logs in parallel threads (the scan releases the interpreter lock).

    A file that vanishes or breaks while being read becomes a note; the order of the result is that of
    ``sources``, whatever thread finished first.
    """
    logs = [source for source in sources.found if source.kind == "log"]
    total = sum(source.size for source in logs)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    readings: dict[str, Reading] = {}
    threads = max(1, min(len(logs), os.cpu_count() or 1))
    free = [scanners] + [scanners.clone() for _ in range(threads - 1)]

    def read(source: Source) -> Reading | str:
        own = free.pop()
        try:
            return read_source(source, own, advance)
        except OSError as error:
            return str(error.strerror or error)
        finally:
            free.append(own)

    with ThreadPoolExecutor(threads) as pool:
        for source, result in zip(logs, pool.map(read, logs), strict=True):
            if isinstance(result, str):
                sources.note(source.name, _("could not be read to the end ({reason})").format(reason=result))
            else:
                readings[source.name] = result
    for source in sources.found:
        if source.kind == "error_file":
            try:
                readings[source.name] = read_error_file(source, signatures)
            except ErrorFileError as problem:
                sources.note(source.name, _("no torchelastic error file: {problem}; skipped").format(problem=problem))
    return [readings[source.name] for source in sources.found if source.name in readings]
