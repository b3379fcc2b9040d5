"""Reads what lies beside the logs and is no log: flight recorder dumps of all ranks, configuration files.

One bad file becomes one note; the rest is read.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from logforensics.config_events import reading_of_config
from logforensics.configs import ConfigError, read_config
from logforensics.correlate.recorder import GroupState, compare, last_calls
from logforensics.flight_recorder import Call, Dump, DumpError, read_dump
from logforensics.identity import announced_size
from logforensics.language import _
from logforensics.reader import Reading
from logforensics.recorder_events import LAST, OTHER, WAITING, reading_of, shift_to_run
from logforensics.sources import Source, Sources

# More groups than these, per rank, are not shown when nothing is wrong in them.
_MOST_LAST = 8
# So many calls are held at a time; of a large run's dumps the newest ones, where the trouble is.
_MOST_CALLS = 200_000
_FEWEST_CALLS = 256


def read_configs(sources: Sources) -> list[Reading]:
    """Return a reading for each configuration file that is known; other files of that kind are passed over."""
    readings: list[Reading] = []
    for source in sources.found:
        if source.kind == "config":
            try:
                config = read_config(source)
            except ConfigError as problem:
                sources.note(
                    source.name, _("a configuration that cannot be read: {problem}; skipped").format(problem=problem)
                )
            except OSError as error:
                sources.note(
                    source.name, _("cannot be read ({reason}); skipped").format(reason=error.strerror or error)
                )
            else:
                if config is not None:
                    readings.append(reading_of_config(source, config))
    return readings


def read_dumps(sources: Sources, logs: list[Reading], world_size: int | None) -> tuple[list[Reading], list[GroupState]]:
    """Return a reading for each flight recorder dump, with the calls that matter, and what all dumps say together.

    ``logs`` lend their clock, and the run's size unless ``world_size`` gives it.
    """
    with _collector_off():
        return _read_dumps(sources, logs, world_size)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Millions of values are made that all stay: looking through them for garbage takes as long as reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_dumps(
    sources: Sources, logs: list[Reading], world_size: int | None
) -> tuple[list[Reading], list[GroupState]]:
    read: list[tuple[Source, Dump]] = []
    latest = max((raw.event.attempt for log in logs for raw in log.events), default=0)
    found = [source for source in sources.found if source.kind == "flight_recorder"]
    most = max(_FEWEST_CALLS, _MOST_CALLS // max(1, len(found)))
    for source in found:
        try:
            dump, note = read_dump(source, most)
        except DumpError as problem:
            sources.note(
                source.name, _("a flight recorder dump that cannot be read: {problem}; skipped").format(problem=problem)
            )
            continue
        except OSError as error:
            sources.note(source.name, _("cannot be read ({reason}); skipped").format(reason=error.strerror or error))
            continue
        if dump.attempt is None:
            dump.attempt = latest  # each attempt overwrites the dumps of the one before
        if dump.rank is None:
            sources.note(source.name, _("a flight recorder dump whose name does not end with its rank; not compared"))
        if note is not None:
            sources.note(note.source, note.what)
        read.append((source, dump))
    dumps = [dump for _, dump in read]
    states = compare(dumps, world_size or announced_size(logs))
    shift = shift_to_run(logs, dumps)
    readings = [reading_of(source, dump, _telling(dump, states), shift) for source, dump in read]
    for dump in dumps:
        dump.calls = []  # what matters of them is in the events and the states now
    return readings, states


def _telling(dump: Dump, states: list[GroupState]) -> list[tuple[Call, str]]:
    """The calls of a dump that say something: where it is stuck, where it differs, what it did last."""
    told: list[tuple[Call, str]] = []
    groups: set[str] = set()
    for state in states:
        kinds = ((state.diverged, OTHER), (state.waiting, WAITING), (state.agreed, WAITING))
        for steps, kind in kinds:
            step = steps.get(dump.rank) if dump.rank is not None else None
            if step is not None and any(call is step.call for call in dump.calls):
                told.append((step.call, kind))
                groups.add(state.group.label)
        if dump.rank in state.members:
            groups.add(state.group.label)
    last = last_calls(dump)
    told += [(call, LAST) for call in last if call.group.label in groups]
    told += [(call, LAST) for call in last[-_MOST_LAST:]]
    return told
