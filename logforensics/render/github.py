"""What GitHub Actions shows beside the code: annotations, as workflow commands in the job's output.

A line of a log that is printed could itself be such a command, so reports are printed between ``stop-commands``.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from logforensics.render.text import clean, cut

if TYPE_CHECKING:
    from logforensics.analysis import Analysis

_MESSAGE_CHARACTERS = 1000
# A diagnosis that is not established is a warning: it points at nothing for sure.
_LEVELS = {"diagnosed": "error", "undetermined": "warning"}


def in_github_actions() -> bool:
    """Whether this is a step of a GitHub Actions job."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotation(level: str, message: str, **properties: object) -> str:
    """Return a workflow command ("error" or "warning"), escaped by GitHub's rules; None and "" are left out."""
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value not in (None, ""))
    return f"::{level}{' ' + said if said else ''}::{_escaped(cut(message, _MESSAGE_CHARACTERS))}"


def annotation_of(analysis: Analysis, *, real_paths: bool = True) -> str | None:
    """Return the annotation for a verdict's first evidence; None where no failure was found.

    ``real_paths``: name the file as the workspace has it, so that GitHub can link to it; else as the report does.
    """
    verdict = analysis.verdict
    level = _LEVELS.get(verdict.status)
    if level is None:
        return None
    message, title = clean(verdict.headline), f"{verdict.category}, confidence {verdict.confidence}"
    if not verdict.evidence:
        return annotation(level, message, title=title)
    first = verdict.evidence[0]
    source = next((source for source in analysis.sources if source.name == first.source), None)
    file = in_workspace(source.path) if source is not None and real_paths else None
    text = clean(" ".join(first.text.split("\n")))
    return annotation(
        level,
        f"{message}\n{text}",
        file=clean(file or first.source),
        line=first.line,
        endLine=first.end_line,
        title=title,
    )


def in_workspace(path: Path) -> str | None:
    """Return a path from the checkout's root; None where it lies elsewhere."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    path = path.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None


def annotate(commands: Iterable[str | None], *, quiet: bool) -> None:
    """Print annotations in a job of GitHub Actions, and nothing elsewhere.

    ``quiet``: standard output holds a report already; GitHub reads standard error as well.
    """
    if in_github_actions():
        stream = sys.stderr if quiet else sys.stdout
        for command in filter(None, commands):
            print(command.encode(stream.encoding or "ascii", "replace").decode(stream.encoding or "ascii"), file=stream)
        stream.flush()


@contextmanager
def commands_stopped() -> Iterator[None]:
    """Have GitHub take what is printed inside as text only; does nothing outside of its jobs."""
    if not in_github_actions():
        yield
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", flush=True)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _escaped(str(value)).replace(":", "%3A").replace(",", "%2C")
