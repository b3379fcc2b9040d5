"""The pipeline, and the public call: paths in, a diagnosis out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from logforensics.correlate.verdict import Diagnosis, diagnose
from logforensics.error_file import ErrorFileProblem, read_error_file
from logforensics.identity import Identity, resolve_identity
from logforensics.model import CollectiveState, ChainLink, Event, Note, RankState, Verdict
from logforensics.reader import Reading, Scanners, read_source
from logforensics.signatures import SignatureSet, signatures_with
from logforensics.sources import Source, Sources, collect
from logforensics.timeline import build_timeline, to_frame

if TYPE_CHECKING:
    import polars as pl


@dataclass
class Analysis:
    """What a run's logs say. ``verdict`` is the answer, ``timeline`` everything it rests on.

    ``ranks`` has one state for each rank that the logs speak of or announce; ``first_exceptions`` one event
    for each rank that had one, earliest first.
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
    attempts: int = 1
    facts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def timeline(self) -> pl.DataFrame:
        """The events as a polars frame, one row each, in causal reading order (README, "The timeline")."""
        return to_frame(self.events)

    def event(self, event_id: int) -> Event:
        """Return the event with this id."""
        return self.events[event_id]


def cache_folder() -> Path:
    """Return the user's cache folder for compiled scan databases."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("logforensics"))


def analyze(
    paths: str | Path | Iterable[str | Path],
    *,
    parsers: Path | None = None,
    world_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    use_cache: bool = True,
) -> Analysis:
    """Diagnose the run whose logs are at ``paths`` (files, folders, globs, archives, "-" for stdin).

    Args:
        paths: one path or several; folders are searched whole.
        parsers: a folder of your own signatures, used beside the shipped ones.
        world_size: the number of ranks, where the logs do not say.
        progress: called with (bytes done, bytes in all) while scanning.
        use_cache: keep the compiled scan database in the user's cache folder.

    Raises:
        InputError: nothing readable at ``paths``.
        SignatureError: ``parsers`` is no folder of dialects.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    cache = cache_folder() if use_cache else None
    signatures = signatures_with(parsers, cache)
    with collect(given) as sources:
        for problem in signatures.problems:
            sources.note("your signatures", problem)
        scanners = Scanners(signatures, cache)
        readings = read_sources(sources, scanners, signatures, progress)
        identity = resolve_identity(readings)
        if world_size is not None:
            identity.world_size = world_size
        events = build_timeline(readings)
        diagnosis = diagnose(events, identity, readings, sources)
        return _analysis(diagnosis, events, identity, sources)


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
    threads = max(1, min(len(logs), cpu_count() or 1))
    free = [scanners] + [scanners.clone() for _ in range(threads - 1)]

    def read(source: Source) -> Reading | str:
        own = free.pop()
        try:
            return read_source(source, own, advance)
        except OSError as error:
            return f"could not be read to the end ({error.strerror or error})"
        finally:
            free.append(own)

    with ThreadPoolExecutor(threads) as pool:
        for source, result in zip(logs, pool.map(read, logs), strict=True):
            if isinstance(result, str):
                sources.note(source.name, result)
            else:
                readings[source.name] = result
    for source in sources.found:
        if source.kind == "error_file":
            try:
                readings[source.name] = read_error_file(source, signatures)
            except ErrorFileProblem as problem:
                sources.note(source.name, f"no torchelastic error file: {problem}; skipped")
    return [readings[source.name] for source in sources.found if source.name in readings]
