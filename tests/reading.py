"""Reads small logs written by a test through the same steps as the program: sources, scan, identity, timeline."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from logforensics.error_file import read_error_file
from logforensics.identity import Identity, resolve_identity
from logforensics.model import Event
from logforensics.reader import Reading, Scanners, read_source
from logforensics.signatures import shipped_signatures
from logforensics.sources import collect
from logforensics.timeline import build_timeline

LAST_LINE = "log/last-line"
Files = dict[str, str | bytes]


@lru_cache(maxsize=2)
def scanners(*, plain: bool = False) -> Scanners:
    return Scanners(shipped_signatures(), None, plain=plain)


def write(folder: Path, files: Files, mtime: float | None = None) -> Path:
    """Write the files (path to text) below ``folder``, all of them last changed at ``mtime`` (epoch seconds)."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if mtime is not None:
            os.utime(path, (mtime, mtime))
    return folder


def readings_of(folder: Path, files: Files, *, plain: bool = False, mtime: float | None = None) -> list[Reading]:
    """Return what each file gives, before ranks and times are settled."""
    with collect([write(folder, files, mtime)]) as sources:
        return [
            read_error_file(source, shipped_signatures())
            if source.kind == "error_file"
            else read_source(source, scanners(plain=plain))
            for source in sources.found
        ]


def identified(folder: Path, files: Files) -> tuple[Identity, list[Event]]:
    """Return who is who in these files, and their events in causal reading order."""
    readings = readings_of(folder, files)
    identity = resolve_identity(readings)
    return identity, build_timeline(readings)


def events_of(folder: Path, files: Files | str, *, plain: bool = False, mtime: float | None = None) -> list[Event]:
    """Return the events of these files (or of one log with this text) in causal reading order."""
    if isinstance(files, str):
        files = {"run.log": files}
    readings = readings_of(folder, files, plain=plain, mtime=mtime)
    resolve_identity(readings)
    return build_timeline(readings)


def told(events: list[Event]) -> list[Event]:
    """Return the events that a signature made, without the remembered last lines."""
    return [event for event in events if event.signature != LAST_LINE]
