"""Writes many names in few characters, the way cluster people do: ``node[0-62,64-127]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from logforensics.paths import natural
from logforensics.render.text import cut

_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>\d+)$", re.DOTALL)
_MOST = 240


def name_list(names: Iterable[str], most: int = _MOST) -> str:
    """Return the names in the brackets-and-ranges form, "" for none, its middle cut beyond ``most`` characters."""
    stems: dict[tuple[str, int], list[str]] = {}
    for name in sorted(set(names), key=lambda name: (natural(name), len(name), name)):
        match = _NUMBERED.match(name)
        if match is None:
            stems[name, -1] = []
            continue
        # numbers of another width are another series: node-01 and node-1 are two hosts
        digits: str = match["number"]
        padded = len(digits) if digits.startswith("0") and digits != "0" else 0
        stems.setdefault((match["stem"], padded), []).append(digits)
    parts = []
    for (stem, width), numbers in stems.items():
        if width < 0:
            parts.append(stem)
        elif len(numbers) == 1:
            parts.append(stem + numbers[0])
        else:
            parts.append(f"{stem}[{_ranges(numbers)}]")
    return cut(", ".join(parts), most)


def _ranges(numbers: list[str]) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(run) for run in runs)
