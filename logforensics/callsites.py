"""Says what a process was doing from the frames of its traceback (data: ``parsers/callsites.toml``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from logforensics.model import ACTIVITIES
from logforensics.patterns import compiled
from logforensics.records import Frame
from logforensics.resources import data_text


@dataclass(frozen=True, slots=True)
class Callsite:
    """A place in code, and what a process that is there is doing."""

    id: str
    activity: str
    pattern: Any
    samples: tuple[str, ...]


@lru_cache(maxsize=1)
def known_callsites() -> tuple[Callsite, ...]:
    """Return the callsites in the order of the file. Raises ValueError for an unknown activity."""
    table = tomllib.loads(data_text("parsers", "callsites.toml"))
    sites = []
    for entry in table["callsite"]:
        if entry["activity"] not in ACTIVITIES:
            raise ValueError(f"callsites.toml: {entry['id']}: unknown activity {entry['activity']!r}")
        sites.append(Callsite(entry["id"], entry["activity"], compiled(entry["pattern"]), tuple(entry["sample"])))
    return tuple(sites)


@lru_cache(maxsize=4096)
def _activity_of(frame: Frame) -> str | None:
    text = frame.text
    return next((site.activity for site in known_callsites() if site.pattern.search(text)), None)


def activity_of(frames: list[Frame]) -> str | None:
    """Return what the process was doing when this stack was taken; None when no frame tells.

    The innermost telling frame decides, but "training" (a forward or a backward pass) gives way to what an
    outer frame says more precisely: a forward pass inside an evaluation is an evaluation.
    """
    found = [activity for frame in reversed(frames) if (activity := _activity_of(frame))]
    if not found:
        return None
    if found[0] == "training":
        return next((activity for activity in found if activity in {"evaluation", "init", "compile"}), "training")
    if found[0] == "init" and "rendezvous" in found:
        return "rendezvous"  # the very first group is being made: init_process_group is further out
    return found[0]
